package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
	"github.com/hongbao-project/hongbao/internal/front/serve"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// httpCallers is how many connections send grabs concurrently.
const httpCallers = 256

// bare is the name of the handler that does nothing.
const bare = "a bare handler"

// httpGrabRow compares grabs over HTTP with a bare handler that reads the same body and returns a constant. Both get
// the same requests over as many connections. Each connection sends one request at a time.
func httpGrabRow(ctx context.Context, o options) ([]Result, error) {
	r, err := newFixture(ctx)
	if err != nil {
		return nil, err
	}
	n := o.n(200_000)
	res := Result{
		Name: "http_grab", Unit: "grabs/s", Want: 0.6, Beside: map[string]float64{},
		HowOurs: fmt.Sprintf("%d grabs by %d connections through the server of `hongbao serve`, each user with a token "+
			"(HS256), a limit by user and one by device and day, AOF everysec", n, httpCallers),
		HowBaseline: "the same requests to a net/http handler that reads the body and returns a constant, behind a listener with " +
			"the same limits",
	}
	requests, err := httpRequests("bench", n)
	m := newMeter(r)
	for range o.rounds {
		if err = errors.Join(err, m.measure(ctx, bare, n, func() (float64, error) { return bareGrabs(ctx, requests) })); err != nil {
			break
		}
		err = r.serving(ctx, n, func(address string) error {
			return m.measure(ctx, ours, n, func() (float64, error) {
				return httpCrowd(ctx, address, httpCallers, `"granted"`, requests)
			})
		})
	}
	res.compare(m.rates[ours], m.rates[bare])
	for _, who := range []string{ours, bare} {
		res.Beside[who+", us of server and callers per grab"] = median(m.own[who])
	}
	res.Beside[ours+", us of Redis per grab (cpu)"] = median(m.process[ours])
	res.Beside[ours+", grabs per script call"] = median(m.size[ours])
	return []Result{res}, errors.Join(err, r.close())
}

// serveFleetRow lets many small programs grab through one server, which collects their grabs into calls. It compares
// the cost for Redis with that of small programs that each call the classic script.
func serveFleetRow(ctx context.Context, o options) ([]Result, error) {
	r, err := newFixture(ctx)
	if err != nil {
		return nil, err
	}
	f, n := fleet{256, 2}, o.n(200_000)
	res := Result{
		Name: "serve_" + f.String(), Unit: "us", Want: 0.35, Below: true, Beside: map[string]float64{},
		HowOurs: fmt.Sprintf("processor time of Redis (INFO cpu) for each of %d grabs by %d callers in each of %d clients, "+
			"over HTTP through one server of `hongbao serve`, as in http_grab", n, f.callers, f.pods),
		HowBaseline: "the processor time of Redis for a grab of the classic script by go-redis, one grab per call, from as " +
			"many clients and callers",
	}
	requests, err := httpRequests("bench", n)
	m := newMeter(r)
	for range o.rounds {
		if err = errors.Join(err, r.classicGrabs(ctx, f, n, m)); err != nil {
			break
		}
		err = r.serving(ctx, n, func(address string) error {
			return m.measure(ctx, ours, n, func() (float64, error) {
				return httpCrowd(ctx, address, f.pods*f.callers, `"granted"`, requests)
			})
		})
	}
	res.compare(m.process[ours], m.process[goRedis])
	for _, who := range []string{ours, goRedis} {
		res.Beside[who+", grabs/s"] = median(m.rates[who])
		res.Beside[who+", us of Redis per grab (commandstats)"] = median(m.scripts[who])
		res.Beside[who+", grabs per script call"] = median(m.size[who])
	}
	return []Result{res}, errors.Join(err, r.close())
}

var benchSecret = []byte("a secret of the bench, 32 bytes.")

// benchKeys returns the key file of serve, by which it checks the tokens of the bench's users.
func benchKeys() []byte {
	return fmt.Appendf(nil, `{"keys":[{"kty":"oct","kid":"k1","alg":"HS256","k":%q}]}`, base64.RawURLEncoding.EncodeToString(benchSecret))
}

// httpRequests returns the grabs of n users in a campaign as requests that are ready to send.
func httpRequests(campaign string, n int) ([][]byte, error) {
	out := make([][]byte, n)
	for i := range out {
		t := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
			"iss": "https://id.example.com", "aud": "hongbao", "sub": user(i), "exp": time.Now().Add(time.Hour).Unix(),
			"device_id": fmt.Sprintf("d%07d", i/2),
		})
		t.Header["kid"] = "k1"
		token, err := t.SignedString(benchSecret)
		if err != nil {
			return nil, err
		}
		body := fmt.Sprintf(`{"request_id":"r%d"}`, i)
		out[i] = fmt.Appendf(nil, "POST /v1/campaigns/%s/grabs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", campaign, token, len(body), body)
	}
	return out, nil
}

// connection is a kept-alive connection to a server. It sends one request at a time.
type connection struct {
	net.Conn
	in *bufio.Reader
}

// connections opens n connections to a server. Close all of them, also after an error.
func connections(ctx context.Context, address string, n int) (all []connection, err error) {
	for range n {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return all, err
		}
		all = append(all, connection{c, bufio.NewReader(c)})
	}
	return all, nil
}

func closeAll(all []connection) {
	for _, c := range all {
		_ = c.Close()
	}
}

// send sends a request, and returns an error unless the response contains want.
func (c connection) send(request []byte, want string) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && !bytes.Contains(answer, []byte(want)) {
		err = fmt.Errorf("a request got %s: %s", res.Status, answer)
	}
	return err
}

// httpCrowd sends every request, and returns an error unless each response contains want.
func httpCrowd(ctx context.Context, address string, callers int, want string, requests [][]byte) (float64, error) {
	all, err := connections(ctx, address, callers)
	defer func() { closeAll(all) }()
	if err != nil {
		return 0, err
	}
	return crowd.Load{Callers: callers, Calls: len(requests)}.Run(ctx, func(_ context.Context, caller, i int) error {
		return all[caller].send(requests[i], want)
	})
}

// bareGrabs sends the requests to a handler that does nothing, behind a listener with the server's limits.
func bareGrabs(ctx context.Context, requests [][]byte) (float64, error) {
	l, err := web.Listen(ctx, "127.0.0.1:0", "the bench")
	if err != nil {
		return 0, err
	}
	cfg := knob.Defaults[serve.Config]()
	server := web.Start(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"outcome":"granted"}`)
	}), serve.Limits(&cfg), zap.NewNop())
	rate, err := httpCrowd(ctx, l.Addr().String(), httpCallers, "granted", requests)
	return rate, errors.Join(err, server.Stop(time.Minute, "run it again"))
}

// serving starts the server, which grabs through a producer, with a campaign of n packets. It calls use with the
// server's address.
func (r *fixture) serving(ctx context.Context, n int, use func(address string) error) error {
	st, err := r.deployment(ctx, 1)
	if err != nil {
		return err
	}
	if _, err := r.load(ctx, st, spec("bench", n)); err != nil {
		return err
	}
	p, err := newProducer(r.rdb, st)
	if err != nil {
		return err
	}
	cfg := knob.Defaults[serve.Config]()
	cfg.Listen, cfg.OpsListen, cfg.Keys, cfg.Issuer = "127.0.0.1:0", "127.0.0.1:0", "bench", "https://id.example.com"
	cfg.DrainDelay, cfg.Audience, cfg.Facts = 0, "hongbao", []string{"device=claim:device_id"}
	s, err := serve.New(cfg, serve.Deps{Grabber: p, Reader: benchReader{r, st}, Log: zap.NewNop(),
		KeyFile: func() ([]byte, string, error) {
			return benchKeys(), "", nil
		}})
	if err != nil {
		return errors.Join(err, p.Close(ctx))
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	at, ended := make(chan serve.Addresses, 1), make(chan error, 1)
	go func() { ended <- s.Run(running, func(a serve.Addresses) { at <- a }) }()
	select {
	case address := <-at:
		err = use(address.Public.String())
		stop()
		err = errors.Join(err, <-ended)
	case err = <-ended:
	}
	return errors.Join(err, p.Close(ctx))
}

// benchReader reads campaigns from the row's Redis.
type benchReader struct {
	*fixture
	store *store.Store
}

// Window implements serve.Reader.
func (b benchReader) Window(ctx context.Context, id string) (model.PublicView, error) {
	return b.store.Home(id).Window(ctx)
}

// Receipts implements serve.Reader.
func (b benchReader) Receipts(context.Context, string, string) (model.Receipts, error) {
	return model.Receipts{}, errors.New("the bench reads no receipts")
}
