package simulation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/run"
	"github.com/hongbao-project/hongbao/internal/simulation/judge"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// Serve is no deed of a moment: users also grab and read receipts by processes of `hongbao serve`.
const Serve = "serve"

// drawServe adds processes of `hongbao serve`, and deeds that concern them.
func (p *Plan) drawServe(size Size, on []string) {
	r := rand.New(rand.NewPCG(p.Seed, 8))
	drawn := r.IntN(4) == 0 || len(on) <= len(Books)
	if !drawn || !slices.Contains(on, Serve) {
		return
	}
	p.Serves = 1 + r.IntN(2)
	for range r.IntN(3) {
		p.Deeds = append(p.Deeds, Deed{At: time.Duration(r.Int64N(int64(size.Faulty))),
			What: []string{Kill, Stop, Pause, PartRedis}[r.IntN(4)], Who: fmt.Sprintf("h%d", r.IntN(p.Serves)),
			For: 100*time.Millisecond + time.Duration(r.Int64N(int64(size.Faulty/2)))})
	}
	slices.SortStableFunc(p.Deeds, func(a, b Deed) int { return int(a.At - b.At) })
}

// losesRedis reports whether Redis may lose writes.
func (p *Plan) losesRedis() bool {
	return slices.ContainsFunc([]string{Failover, TellerDies, OldFile, FirstFile, Flushed, ClockAhead}, p.has)
}

// serveAddr is the address of a place's public listener, with the ops listener on the next port.
func serveAddr(place string) netip.AddrPort {
	n, _ := strconv.Atoi(place[1:])
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(8100+2*n))
}

// serve lives as `hongbao serve`.
func (s *slot) serve(ctx context.Context, cfg *configs.Config) error {
	_, p := s.get()
	at := serveAddr(s.name)
	cfg.Serve.Listen = at.String()
	cfg.Serve.OpsListen = netip.AddrPortFrom(at.Addr(), at.Port()+1).String()
	cfg.Serve.DrainDelay, cfg.Serve.DrainTimeout = 500*time.Millisecond, 3*time.Second
	cfg.Seams.Listen = p.Listen
	return run.Serve(ctx, cfg, run.Serving{})
}

// gateway is a program that grabs for users by HTTP.
type gateway struct {
	w      *world
	key    string
	client *http.Client
}

// requestTime is how long the gateway waits for an answer.
const requestTime = 3 * time.Second

func (w *world) newGateway(key string) *gateway {
	return &gateway{w, key, &http.Client{Timeout: requestTime,
		Transport: &http.Transport{DialContext: w.net.NewProc("gateway").Dial, MaxIdleConnsPerHost: 10}}}
}

// by returns a grabber that asks a place of `hongbao serve`.
func (g *gateway) by(place string) grabber {
	return grabs(func(ctx context.Context, x *hongbao.Grab) (a hongbao.Answer, err error) {
		var got httpAnswer
		body, _ := json.Marshal(map[string]string{"request_id": x.RequestID})
		if err = g.ask(ctx, http.MethodPost, place, x, body, &got); err != nil {
			return a, err
		}
		a.Outcome = hongbao.Outcome(cmp.Or(got.Outcome, got.Code))
		a.Receipts, err = got.receipts()
		return a, err
	})
}

// grabber is a producer, or a gateway to one.
type grabber interface {
	Grab(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error)
}

type grabs func(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error)

// Grab implements grabber.
func (f grabs) Grab(ctx context.Context, g *hongbao.Grab) (hongbao.Answer, error) { return f(ctx, g) }

// httpAnswer has what the API answers to a grab, to a read of receipts, or with an error.
type httpAnswer struct {
	Outcome, Code string
	Incomplete    bool
	Receipts      []struct {
		Packet, Amount int64
		Event          string
		RequestID      string `json:"request_id"`
	}
}

func (a *httpAnswer) receipts() (list []hongbao.Receipt, err error) {
	for _, x := range a.Receipts {
		shard, seq, _ := strings.Cut(x.Event, "-")
		n, err := strconv.Atoi(shard)
		if err != nil {
			return nil, fmt.Errorf("the event %q: %w", x.Event, err)
		}
		s, err := strconv.ParseInt(seq, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the event %q: %w", x.Event, err)
		}
		list = append(list, hongbao.Receipt{Packet: x.Packet, Amount: hongbao.Amount(x.Amount), Shard: n, Seq: s,
			RequestID: x.RequestID})
	}
	return list, nil
}

// ask sends a request about a user and a campaign. A 4xx is permanent, unless it says that the caller is too fast or
// names an outcome. Nobody knows what became of a request without an answer.
func (g *gateway) ask(ctx context.Context, method, place string, x *hongbao.Grab, body []byte, to *httpAnswer) error {
	at := "http://" + serveAddr(place).String() + "/v1/campaigns/" + url.PathEscape(x.Campaign) + "/grabs"
	if method == http.MethodGet {
		at += "/me"
	}
	r, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if hongbao.CheckID(x.User) != nil {
		return hongbao.Errorf(hongbao.ClassPermanent, "a header can't have the user %q", x.User)
	}
	r.Header.Set("Authorization", "Bearer "+g.key)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Hongbao-User", x.User)
	answer, err := g.client.Do(r)
	if err != nil {
		return hongbao.Outagef(hongbao.ClassUnknown, "%w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return hongbao.Outagef(hongbao.ClassUnknown, "read the answer %q: %w", text, err)
	}
	g.w.cover.note("http", fmt.Sprintf("%s %d %s", method, answer.StatusCode, cmp.Or(to.Outcome, to.Code)))
	switch {
	case answer.StatusCode == http.StatusOK || to.Code == string(hongbao.OutcomeUnknownCampaign):
		return nil
	case answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= http.StatusInternalServerError:
		return hongbao.Outagef(hongbao.ClassTransient, "%s", text)
	}
	g.w.bug("%s %s: %d %s", method, at, answer.StatusCode, text)
	return hongbao.Errorf(hongbao.ClassPermanent, "%s", text)
}

// place returns a place that answers a try of a user: one of `hongbao serve` for half of them, "" for a producer.
func (w *world) place(r *rand.Rand) string {
	if w.plan.Serves == 0 || r.IntN(2) == 0 {
		return ""
	}
	return fmt.Sprintf("h%d", r.IntN(w.plan.Serves))
}

// read reads a user's receipts by HTTP, after a third of the grabs. The user was told them, so each must be everywhere.
// Receipts that they had been told before must be among them, unless Redis may have lost them.
func (w *world) read(ctx context.Context, r *rand.Rand, g *hongbao.Grab) {
	if w.plan.Serves == 0 || r.IntN(3) > 0 {
		return
	}
	before := w.toldTo(g)
	for range 3 {
		var got httpAnswer
		place := fmt.Sprintf("h%d", r.IntN(w.plan.Serves))
		if err := w.gateway.ask(ctx, http.MethodGet, place, g, nil, &got); err != nil {
			if virtual.Sleep(ctx, time.Second) != nil {
				return
			}
			continue
		}
		list, err := got.receipts()
		if err != nil {
			w.bug("read the receipts of %s: %v", g.User, err)
		}
		w.tell(g, &hongbao.Answer{Receipts: list})
		if w.plan.losesRedis() || got.Incomplete {
			return
		}
		for _, t := range before {
			if !slices.ContainsFunc(list, func(x hongbao.Receipt) bool { return x.Packet == t.Packet }) {
				w.bug("%s was told packet %d of %s, and later reads receipts without it", g.User, t.Packet, g.Campaign)
			}
		}
		return
	}
}

// toldTo returns what a user was told of a campaign.
func (w *world) toldTo(g *hongbao.Grab) (list []judge.Win) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.told {
		if t.Campaign == g.Campaign && t.User == g.User {
			list = append(list, t)
		}
	}
	return list
}

// gatewayKey is the key of the gateway.
var gatewayKey = access.Key{Role: access.RoleGateway, Note: "the simulated gateway"}
