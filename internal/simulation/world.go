package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/turn"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ops/apikeys"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/simulation/judge"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

const kafkaAddr = "127.0.0.1:9092"

const kafkaTopic = "hongbao.grants"

// world is a history while it runs.
type world struct {
	plan    Plan
	cover   *Coverage
	net     *virtual.Net
	redis   *virtual.Redis
	kafka   *kfake.Cluster
	dsn     string
	first   reflect.Value // Redis before the first event
	slots   map[string]*slot
	gateway *gateway
	db      *database
	rows    *rows     // nil without subscribers
	hook    *receiver // nil without a webhook
	held    held      // mu guards it

	ordering turn.Lock
	rolling  turn.Lock // sinks come and go one after another

	mu       sync.Mutex
	told     []judge.Win
	gaveUp   []judge.Win
	accepted []int             // shards whose loss a person has accepted
	lost     map[string]bool   // campaigns with a place on such a shard
	todo     map[string]string // what a person still has to do with campaigns
	named    int64             // grants that the accepted reports name as lost
	above    map[string]int64  // packets that a person has granted to "campaign user" above the limit
	// refunded are the campaigns that a person has closed and refunded. lostRefund says that the ledger has lost a refund.
	refunded   []string
	lostRefund bool
	decided    bool // a person has decided about all withheld packets
	bugs       []string
	notes      []string
	alarms     map[string]int // by code
	// withheldLost means that Redis lost an opening that had withheld packets. Then a person decides (docs/design/restore.md).
	withheldLost bool
	// closeLost means that Redis lost a close on which a refund of the ledger is based. Then a person decides
	// (docs/closing.md).
	closeLost bool
	unfounded int // workers that did not start because Redis has no deployment

	sinks        []string      // of processes that start now
	owedAfter    map[int]int64 // by shard: sink kafka owes each event after this seq; nil while it is not there
	twice        *judge.Twice  // a packet that somebody has put back
	kafkaRefuses bool
}

func (w *world) note(format string, args ...any) {
	text := fmt.Sprintf("%8.3fs ", time.Since(virtual.Epoch).Seconds()) + fmt.Sprintf(format, args...)
	w.net.Say("NOTE %s", text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, text)
}

func (w *world) bug(format string, args ...any) {
	w.note("BUG: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bugs = append(w.bugs, fmt.Sprintf(format, args...))
}

// config returns the configuration of a process. Its waits are shorter than the defaults, so that outages are longer
// than leases.
func (w *world) config(p *virtual.Proc) (*configs.Config, error) {
	set := map[string]string{
		"deployment.shards": fmt.Sprint(w.plan.Shards), "redis.addrs": virtual.RedisAddr, "redis.read_timeout": "900ms",
		"redis.pool_timeout": "900ms", "ledger.driver": "sqlite", "ledger.dsn": w.dsn, "ledger.conns": "2",
		"kafka.brokers": strings.Join(w.plan.brokers(), ","), "kafka.topic": kafkaTopic, "kafka.partitions": fmt.Sprint(w.plan.Shards),
		"consumer.lease": "3s", "consumer.poll": "300ms", "consumer.block": "300ms", "consumer.batch_grants": "500",
		"publisher.request_timeout": "1s", "publisher.attempt_time": "2s", "publisher.max_claim_age": "2s",
		"log.level": "info", "log.format": "json",
		// A burst can be larger than the margin that the grants known before it give: a known limit of restores. A campaign
		// of a history begins a minute before, so this margin is some five times as many packets as known grants.
		"work.restore_margin": "5m",
		"unsafe.allow":        strings.Join([]string{configs.UnsafeRedis}, ","),
	}
	w.sinkKnobs(set)
	w.hookKnobs(set)
	var env []string
	for k, v := range set {
		env = append(env, "HONGBAO_"+strings.ToUpper(strings.ReplaceAll(k, ".", "_"))+"="+v)
	}
	slices.Sort(env)
	c, err := configs.Load("", env, nil)
	if err == nil {
		c.Seams = configs.Seams{Dial: p.Dial, Gate: w.db.gate(p), Process: p.Name, Log: &heard{w: w, process: p.Name}}
	}
	return c, err
}

// heard reads the log of a process: its alarms are what a person sees.
type heard struct {
	w       *world
	process string
}

var _ io.Writer = (*heard)(nil)

// Write implements io.Writer.
func (h *heard) Write(line []byte) (int, error) {
	var l struct {
		Level, Message, Code, Lost string
		Restored                   *struct{ Silent bool }
	}
	_ = json.Unmarshal(line, &l)
	h.w.net.Say("LOG %s %s", h.process, bytes.TrimSpace(line))
	switch {
	case strings.Contains(l.Message, "no loss is known"):
		h.w.cover.note("opening", "no loss known, a process silent")
	case strings.Contains(l.Message, "nothing was lost"):
		h.w.cover.note("opening", "nothing lost")
	case l.Restored != nil && l.Restored.Silent:
		h.w.cover.note("opening", "guarded")
	case l.Restored != nil:
		h.w.cover.note("opening", "exact")
	}
	if l.Code != "" {
		h.w.cover.note("alarm", l.Code)
		h.w.mu.Lock()
		h.w.alarms[l.Code]++
		back := l.Code == "redis_went_back"
		h.w.withheldLost = h.w.withheldLost || back && strings.Contains(l.Lost, "which withheld packets")
		h.w.closeLost = h.w.closeLost || back && strings.Contains(l.Lost, "the ledger has refunded")
		h.w.mu.Unlock()
	}
	return len(line), nil
}

// open starts the servers, and creates and loads the campaigns.
func (w *world) open(ctx context.Context) (err error) {
	if w.redis, err = virtual.NewRedis(w.net, w.plan.Seed); err != nil {
		return err
	}
	if w.plan.changesSinks() {
		w.redis.SetNode(5) // so that the few entries of a history are trimmed
	}
	settings := map[string]string{"message.max.bytes": "2000000"}
	if w.plan.has(Forgotten) {
		settings["producer.id.expiration.ms"] = fmt.Sprint(producerLife.Milliseconds())
	}
	if err := errors.Join(w.openKafka(settings), w.openHook()); err != nil {
		return err
	}
	if w.plan.Subscribers > 0 {
		if err := w.newRows(ctx); err != nil {
			return err
		}
	}
	return w.with(ctx, "admin", app.Needs{}, func(a *app.App) error {
		if _, err := a.Init(ctx); err != nil {
			return err
		}
		if err := a.Ready(ctx, app.Needs{Redis: true, Ledger: true}); err != nil {
			return err
		}
		for _, c := range w.plan.Campaigns {
			if err := w.create(ctx, a, c); err != nil {
				return err
			}
		}
		key := &apikeys.NewKey{}
		if w.plan.Serves > 0 {
			if key, err = apikeys.Of(a).CreateKey(ctx, gatewayKey); err != nil {
				return err
			}
		}
		w.gateway = w.newGateway(key.Text)
		w.first = virtual.Snapshot(w.redis.Miniredis)
		return w.prepareRefusals(ctx)
	})
}

// price is the mean amount of a packet.
const price = 10

func (w *world) create(ctx context.Context, a *app.App, c Rain) error {
	now := time.Now().Truncate(time.Second)
	total := hongbao.Amount(c.Packets) * price
	from := now.Add(-time.Minute)
	if c.Later {
		from = now.Add(w.plan.Faulty / 4)
	}
	spec := campaign.Complete(hongbao.Campaign{
		ID: c.ID, Name: "Rain", Kind: hongbao.KindRedPacket, Currency: "CNY", Total: total, Packets: c.Packets,
		Split: hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: total}, From: from,
		To: now.Add(24 * time.Hour), TimeZone: "Asia/Shanghai", Sponsor: "acme", Durability: hongbao.DurabilityFast,
		Limits: []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: c.Hold}},
	})
	if c.Shards > 1 {
		spec.Shards = c.Shards
	}
	if _, err := campaigns.Of(a).Create(ctx, spec, nil); err != nil {
		return err
	}
	_, err := campaigns.Of(a).Load(ctx, c.ID)
	return err
}

// with opens a deployment as a command does.
func (w *world) with(ctx context.Context, name string, n app.Needs, do func(*app.App) error) (err error) {
	cfg, err := w.config(w.net.NewProc(name))
	if err != nil {
		return err
	}
	a, err := app.New(cfg, zap.NewNop(), app.Hooks{})
	if err != nil {
		return err
	}
	defer a.Shut(&err)
	if err := a.Ready(ctx, n); err != nil {
		return err
	}
	return do(a)
}
