// Command outside is a module of its own that needs only Hongbao's public packages. `outside` serves grabs over HTTP,
// mails each winner from its own consumer group, and reads the topic. `outside verify FILE HASH` checks a draw.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/consumer"
	"github.com/hongbao-project/hongbao/dedup"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/producer"
	"github.com/hongbao-project/hongbao/subscriber"
	"github.com/hongbao-project/hongbao/topic"
)

// id and space must be the same as in `hongbao init`.
var (
	id     = os.Getenv("DEPLOYMENT")
	space  = hongbao.Space{Prefix: os.Getenv("KEY_PREFIX"), Shards: 2}
	logger = zap.Must(zap.NewProduction())
)

func main() {
	if len(os.Args) == 4 && os.Args[1] == "verify" {
		check(verify(os.Args[2], os.Args[3]))
		return
	}
	check(serve())
}

// serve runs the three parts until SIGTERM or until one of them fails.
func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := must(deployment.Open(deployment.Config{ID: id, Space: space, Log: logger,
		Redis: &redis.UniversalOptions{Addrs: []string{os.Getenv("REDIS")}}}))
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return web(ctx, d) })
	parts.Go(func() error { return mail(ctx, d) })
	parts.Go(func() error { return read(ctx) })
	return errors.Join(parts.Wait(), d.Close())
}

// must returns v, or ends the program with err if the configuration is wrong.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		logger.Fatal("outside ends", zap.Error(err))
	}
}

func say(words ...any) error { _, err := fmt.Println(words...); return err }

// web answers POST /grab?campaign=C&user=U&request=R&device=D with the outcome and the receipts.
func web(ctx context.Context, d *deployment.Deployment) error {
	cfg := producer.DefaultConfig()
	cfg.Deployment = d
	p := must(producer.New(cfg))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /grab", func(w http.ResponseWriter, r *http.Request) {
		g := hongbao.Grab{Campaign: r.FormValue("campaign"), User: r.FormValue("user"), RequestID: r.FormValue("request"),
			Facts: map[string]string{"device": r.FormValue("device")}}
		answer, err := p.Grab(r.Context(), &g)
		if err != nil { // class Unknown: the user may have won. The client repeats it with the same request id
			status := http.StatusServiceUnavailable
			if hongbao.ClassOf(err) == hongbao.ClassPermanent { // malformed, or a fact is missing: certainly not granted
				status = http.StatusBadRequest
			}
			http.Error(w, err.Error(), status)
			return
		}
		if !answer.Outcome.Final() { // busy, frozen or refilling: nothing was decided, so this is no refusal
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(answer) // an error means that the client is gone
	})
	server := &http.Server{Addr: os.Getenv("LISTEN"), Handler: mux, ReadHeaderTimeout: time.Second}
	answered := make(chan error, 1)
	defer context.AfterFunc(ctx, func() { answered <- server.Shutdown(context.Background()) })()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return errors.Join(<-answered, p.Close(context.Background())) // both wait for the grabs in flight
}

// mailer is a Handler that sends mails. A handler may get a grant more than once, so mailer mails once for each packet.
type mailer struct{ once *dedup.Once }

func (m mailer) Handle(ctx context.Context, batch hongbao.Batch) []error {
	grants := batch.Grants
	errs := make([]error, len(grants))
	for i, g := range grants {
		mail := func(context.Context) error { return say("mail", g.User, g.Packet) }
		packet := fmt.Sprintf("%s/%d", g.Campaign, g.Packet)
		state, err := m.once.Push(ctx, packet, rand.Text(), mail)
		switch {
		case err != nil:
			errs[i] = err
		case state == dedup.InProgress:
			errs[i] = hongbao.Waitingf("another worker is mailing packet %s", packet)
		case state == dedup.InDoubt:
			errs[i] = hongbao.Errorf(hongbao.ClassPermanent, "the mail for packet %s may be sent: its worker died", packet)
		}
	}
	return errs
}

// mail runs the consumer group "mail" on the stream.
func mail(ctx context.Context, d *deployment.Deployment) error {
	once := must(dedup.NewOnce(dedup.OnceConfig{Deployment: d, Name: "mail", Lease: time.Minute, Keep: 24 * time.Hour}))
	cfg := consumer.DefaultConfig()
	cfg.Deployment, cfg.Group, cfg.Handler = d, "mail", mailer{once}
	return must(consumer.New(cfg)).Run(ctx)
}

// read subscribes to the topic, and applies one effect to each message.
func read(ctx context.Context) error {
	effect := func(_ context.Context, e topic.Event) error { return say("topic", e.Grant.User, e.Grant.Packet) }
	sink := must(subscriber.NewFuncSink(subscriber.FuncSinkConfig{Effect: effect, Timeout: time.Second}))
	cfg := subscriber.DefaultConfig()
	cfg.Brokers, cfg.ClientID, cfg.Group, cfg.Deployment = []string{os.Getenv("KAFKA")}, "outside", "outside", id
	cfg.Topic, cfg.DeadLetters, cfg.Sink, cfg.Log = os.Getenv("TOPIC"), os.Getenv("TOPIC_DEAD"), sink, logger
	return must(subscriber.New(cfg)).Run(ctx)
}

// verify recomputes a draw from the file that `hongbao campaign reveal` wrote and the hash that was published before.
func verify(file, hash string) error {
	disclosure := must(campaign.ReadDisclosure(must(os.Open(file))))
	c, plan, err := disclosure.Verify(hash)
	if err != nil {
		return err
	}
	return say("verified", c.ID, len(plan.Amounts))
}
