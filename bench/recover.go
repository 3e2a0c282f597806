package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
	"github.com/hongbao-project/hongbao/internal/ledger/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

const (
	lossProcesses = 4 // processes that grant packets
	lossCampaigns = 4 // campaigns that the processes grant in turn
	lossStock     = 1_000_000
	lossLimit     = 20 // seconds
	lossTime      = 2 * time.Minute
)

// recoverRow measures how long a shard that lost 100,000 grants stays frozen. The baseline is the time in which the
// grants were made, because a restore finds and writes each of them again.
func recoverRow(ctx context.Context, o options) ([]Result, error) {
	topics, err := newPublishBench(ctx, 10_000)
	if err != nil {
		return nil, err
	}
	db, err := postgresDatabase(ctx)
	if err != nil {
		return nil, errors.Join(err, topics.close())
	}
	b := &lossBench{publishBench: topics, db: db, n: o.n(100_000)}
	results, err := b.rows(ctx, o.rounds)
	return results, errors.Join(err, db.close(), topics.close())
}

type lossBench struct {
	*publishBench
	db *database
	n  int // lost grants
}

func (b *lossBench) rows(ctx context.Context, rounds int) (results []Result, err error) {
	for _, kind := range []struct {
		name, calls string
		size        int
	}{
		{"recover_1e5", fmt.Sprintf("calls with %d grabs each, the maximum", store.MaxGrabs), store.MaxGrabs},
		{"recover_1e5_singles", "calls with one grab each, so that each grant has its own entry", 1},
	} {
		res := Result{Name: kind.name, Unit: "s", Most: lossLimit,
			HowOurs: fmt.Sprintf("from the promotion of a replica that lacks %d grants until its shard is open with all of them. "+
				"PostgreSQL and Kafka have a tenth of these grants; the others are only in the memory of the %d processes "+
				"that made them, in %d campaigns of %d packets in all, in turn, by %s; the run compares each user's "+
				"receipt", b.n, lossProcesses, lossCampaigns, lossStock, kind.calls),
			HowBaseline: "the time in which the same calls made these grants: a restore writes each grant once more",
		}
		var ours, baseline []float64
		var steps []model.OpeningSteps
		for range rounds {
			l, err := b.lose(ctx, kind.size)
			if err != nil {
				return nil, err
			}
			ours, baseline = append(ours, l.shut.Seconds()), append(baseline, l.granting.Seconds())
			steps = append(steps, l.took)
		}
		res.compare(ours, baseline)
		res.Beside = besideSteps(steps)
		results = append(results, res)
	}
	return results, nil
}

// besideSteps returns the median duration of each step, in seconds.
func besideSteps(rounds []model.OpeningSteps) map[string]float64 {
	out := map[string]float64{}
	for name, ms := range map[string]func(*model.OpeningSteps) int64{
		"fence the ledger, s":               func(s *model.OpeningSteps) int64 { return s.Ledger },
		"hear the processes, s":             func(s *model.OpeningSteps) int64 { return s.Witnesses },
		"fence the topic meanwhile, s":      func(s *model.OpeningSteps) int64 { return s.Topic },
		"read what they know, and judge, s": func(s *model.OpeningSteps) int64 { return s.Judge },
		"put back, s":                       func(s *model.OpeningSteps) int64 { return s.PutBack },
		"mark what the topic has, s":        func(s *model.OpeningSteps) int64 { return s.Marks },
		"open, s":                           func(s *model.OpeningSteps) int64 { return s.Open },
	} {
		var all []float64
		for i := range rounds {
			all = append(all, float64(ms(&rounds[i]))/1000)
		}
		out[name] = median(all)
	}
	return out
}

// loss is a deployment with one shard that loses its primary.
type loss struct {
	at       atomic.Pointer[testkit.RedisServer] // the primary, to which clients connect
	spare    *testkit.RedisServer
	worker   *store.Store
	asked    []*store.Store // one per process that grants packets
	ledger   *ledgerFixture
	topic    string
	campaign [lossCampaigns]string

	made           int // grants
	took           model.OpeningSteps
	receipts       [lossCampaigns]map[string]hongbao.Receipt
	granting, shut time.Duration
}

// lose creates a deployment, makes grants by calls of size grabs, and loses them in a failover.
func (b *lossBench) lose(ctx context.Context, size int) (l *loss, err error) {
	l = &loss{}
	primary, err := testkit.StartRedis(ctx, testkit.RedisOptions{})
	if err != nil {
		return nil, err
	}
	l.at.Store(primary)
	if l.spare, err = testkit.StartRedis(ctx, testkit.RedisOptions{ReplicaOf: primary}); err == nil {
		err = b.run(ctx, l, size)
	}
	return l, errors.Join(err, primary.Close(), l.spare.Close())
}

func (b *lossBench) run(ctx context.Context, l *loss, size int) error {
	old := l.at.Load()
	ctx, stop := context.WithTimeout(ctx, lossTime)
	parts, running := errgroup.WithContext(ctx)
	defer func() { stop(); _ = parts.Wait() }()
	rdb := l.client()
	defer rdb.Close()
	if err := b.initialize(ctx, l, rdb); err != nil {
		return err
	}
	defer func() { _ = l.ledger.end(context.WithoutCancel(ctx)) }()
	for range lossProcesses {
		client := l.client()
		defer client.Close()
		st := l.worker.Over(client)
		parts.Go(func() error { return (&store.Watch{Store: st}).Run(running) })
		l.asked = append(l.asked, st)
	}
	if err := l.grant(ctx, 2*lossProcesses*size, size); err != nil {
		return err
	}
	if err := rdb.Do(ctx, "WAIT", 1, 5000).Err(); err != nil {
		return err
	}
	l.granting = 0
	spare := redis.NewClient(l.spare.Options())
	defer spare.Close()
	if err := spare.Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil { // from now on the spare gets no writes
		return err
	}
	if err := l.grant(ctx, b.n/10, size); err != nil {
		return err
	}
	if err := b.deliver(ctx, l); err != nil {
		return err
	}
	if err := l.grant(ctx, b.n-b.n/10, size); err != nil {
		return err
	}
	recoverer, closeLog, err := b.recoverer(l)
	if err != nil {
		return err
	}
	defer closeLog()
	frozen := make(chan int, 1)
	watch := &store.Watch{Store: l.worker, Frozen: func(shard int) {
		select {
		case frozen <- shard:
		default:
		}
	}}
	began := time.Now()
	l.at.Store(l.spare)
	if err := old.Kill(); err != nil {
		return err
	}
	parts.Go(func() error { return watch.Run(running) })
	parts.Go(func() error { return recoverer.Run(running, frozen) })
	for ctx.Err() == nil {
		if h, err := l.worker.Shard(0).OpenHead(ctx); err == nil && h.Epoch > 1 {
			l.shut = time.Since(began)
			return l.kept(ctx, int64(b.n), recoverer)
		}
		retry.Pause(ctx, 5*time.Millisecond)
	}
	return ctx.Err()
}

// client returns a client that always connects to the current primary.
func (l *loss) client() *redis.Client {
	opts := l.at.Load().Options()
	opts.PoolSize, opts.ReadTimeout, opts.ContextTimeoutEnabled = 16, 30*time.Second, true
	opts.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, l.at.Load().Addr)
	}
	return redis.NewClient(opts)
}

// initialize creates a deployment with its ledger and its campaigns.
func (b *lossBench) initialize(ctx context.Context, l *loss, rdb *redis.Client) (err error) {
	if l.topic, err = b.topic(ctx); err != nil {
		return err
	}
	l.worker, err = store.New(store.Config{Redis: rdb, Space: hongbao.Space{Prefix: l.topic, Shards: 1}})
	if err != nil {
		return err
	}
	if l.ledger, err = b.db.open(ctx, nil); err != nil {
		return err
	}
	has, err := l.ledger.ledger.Deployment(ctx)
	if err != nil {
		return err
	}
	if err := l.worker.Initialize(ctx, store.InitializeCall{Deployment: has.ID, Founding: has.Founding}); err != nil {
		return err
	}
	for i := range l.campaign {
		l.campaign[i], l.receipts[i] = fmt.Sprintf("bench-%d", i), map[string]hongbao.Receipt{}
		c, err := b.fixture.load(ctx, l.worker, spec(l.campaign[i], lossStock/lossCampaigns))
		if err == nil {
			_, err = l.ledger.ledger.CreateCampaign(ctx, c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// grant makes n grants by calls of size grabs, in all campaigns in turn. It keeps the answers that users got.
func (l *loss) grant(ctx context.Context, n, size int) error {
	const perProcess = 8 // calls at once
	from := l.made
	l.made += n
	answers := make([]hongbao.Answer, n)
	calls := (n + size - 1) / size
	start := time.Now()
	_, err := crowd.Load{Callers: lossProcesses * perProcess, Calls: calls}.Run(ctx, func(ctx context.Context, _, i int) error {
		call, id := store.GrabCall{Currency: "CNY", MaxBacklog: 1e9, FactNames: "device"}, l.campaign[i%lossCampaigns]
		first, last := i*size, min((i+1)*size, n)
		for u := first; u < last; u++ {
			g := deviceGrab(from + u)
			g.Campaign, g.RequestID = id, "r"
			call.Grabs = append(call.Grabs, g)
		}
		got, err := l.asked[i%lossProcesses].Shard(0).Place(id).Grab(ctx, &call, nil)
		copy(answers[first:last], got)
		return err
	})
	l.granting += time.Since(start)
	for i := range answers {
		if answers[i].Outcome != hongbao.OutcomeGranted {
			return errors.Join(err, fmt.Errorf("a grab got %s", answers[i].Outcome))
		}
		l.receipts[i/size%lossCampaigns][user(from+i)] = answers[i].Receipts[0]
	}
	return err
}

// deliver delivers all grants so far to the ledger and to the topic.
func (b *lossBench) deliver(ctx context.Context, l *loss) error {
	r := &fixture{rdb: l.worker.Redis().(*redis.Client)} //nolint:forcetypeassert // found sets it
	if _, err := r.consume(ctx, l.worker, "balance", l.made, l.ledger.settler); err != nil {
		return err
	}
	p, err := b.sink(l.worker, l.topic, "none")
	if err != nil {
		return err
	}
	defer p.Close()
	_, err = r.consume(ctx, l.worker, "kafka", l.made, p)
	return err
}

// recoverer returns a recoverer with the same settings as in a worker.
func (b *lossBench) recoverer(l *loss) (*recovery.Recoverer, func(), error) {
	log, err := publish.NewLog(b.publishing(l.topic, "none"))
	if err != nil {
		return nil, nil, err
	}
	return recovery.New(recovery.Config{Store: l.worker, Ledger: l.ledger.ledger,
		Journal: access.Of(l.ledger.ledger.Tables()), Topic: log, TopicSink: "kafka",
		Sinks: []string{"balance", "kafka"}, Log: zap.NewNop()}), log.Close, nil
}

// kept returns an error unless the restored receipts equal the answers that users got.
func (l *loss) kept(ctx context.Context, lost int64, r *recovery.Recoverer) error {
	var list []model.Restored
	for len(list) == 0 && ctx.Err() == nil { // the report is written after the shard is opened
		var err error
		if list, err = r.Restored(ctx); err != nil {
			return err
		}
	}
	l.took = list[0].Took
	if n := list[0].Last - list[0].First + 1; n != lost || list[0].Unknown > 0 {
		return fmt.Errorf("%d grants were lost, but the report has: %+v", lost, list[0])
	}
	for i, answers := range l.receipts {
		users := make([]string, 0, len(answers))
		for u := range answers {
			users = append(users, u)
		}
		has, err := l.worker.Shard(0).Place(l.campaign[i]).ReceiptsOf(ctx, users)
		if err != nil {
			return err
		}
		for u, r := range answers {
			if len(has[u]) != 1 || has[u][0] != r {
				return fmt.Errorf("user %s got the answer %+v, and has %+v", u, r, has[u])
			}
		}
	}
	return nil
}
