package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
)

// auditRow measures the peak memory and the run time of `hongbao audit` with ten million packets that were granted,
// settled and published; then the same after the campaign was sealed. grab.lua makes the grants, and package consumer
// publishes them. Only the ledger's rows are inserted by COPY, because the settler would take too long.
func auditRow(ctx context.Context, o options) ([]Result, error) {
	topics, err := newPublishBench(ctx, 10_000)
	if err != nil {
		return nil, err
	}
	db, err := postgresDatabase(ctx)
	if err != nil {
		return nil, errors.Join(err, topics.close())
	}
	topics.n = o.n(10_000_000)
	b := &auditBench{publishBench: topics, db: db}
	open, err := b.row(ctx)
	list := []Result{open}
	if err == nil {
		var sealed Result
		sealed, err = b.sealedRow(ctx)
		list = append(list, sealed)
	}
	return list, errors.Join(err, db.close(), topics.close())
}

type auditBench struct {
	*publishBench
	programs
	db    *database
	store *store.Store
}

func (b *auditBench) row(ctx context.Context) (Result, error) {
	res := Result{Name: "audit_1e7", Unit: "MB", Most: 512, HowOurs: fmt.Sprintf("the peak memory of the process `hongbao audit` (VmHWM of /proc). It compares %d grants of one campaign "+
		"in Redis, its stream, the ledger in PostgreSQL and the topic. Each user has one packet, and the audit "+
		"finds no difference", b.n)}
	start := time.Now()
	if err := b.fill(ctx); err != nil {
		return res, err
	}
	filled := time.Since(start)
	start = time.Now()
	peak, _, err := b.audit(ctx)
	took := time.Since(start).Seconds()
	res.compare([]float64{peak}, nil)
	res.Beside = map[string]float64{"the audit takes, s": took, "grants/s": float64(b.n) / took,
		"bytes for each grant": peak * 1e6 / float64(b.n), "making the grants takes, s": filled.Seconds()}
	return res, err
}

// sealedRow ends and seals the campaign, and measures the next audit.
func (b *auditBench) sealedRow(ctx context.Context) (Result, error) {
	res := Result{Name: "audit_sealed_1e7", Unit: "MB", Most: 128, HowOurs: fmt.Sprintf("the peak memory of the process "+
		"`hongbao audit` once the campaign of row audit_1e7 with %d grants was refunded, has left Redis and is sealed", b.n)}
	if err := b.end(ctx); err != nil {
		return res, err
	}
	start := time.Now()
	_, sealing, err := b.run(ctx, "audit", "--seal", "--json")
	if err != nil {
		return res, err
	}
	sealed := time.Since(start)
	var peaks []float64
	took := math.Inf(1)
	for range 3 {
		start = time.Now()
		peak, report, err := b.audit(ctx)
		if err == nil && !report.Campaigns[0].Sealed {
			err = errors.New("the campaign is not sealed")
		}
		if err != nil {
			return res, err
		}
		peaks, took = append(peaks, peak), min(took, time.Since(start).Seconds())
	}
	res.compare(peaks, nil)
	res.Beside = map[string]float64{"the fastest of 3 audits takes, s": took, "the audit that seals takes, s": sealed.Seconds(),
		"the audit that seals needs, MB": sealing}
	return res, nil
}

// end closes and refunds the campaign, waits until a worker has removed it from Redis, and trims the stream.
func (b *auditBench) end(ctx context.Context) error {
	b.env = append(b.env, "HONGBAO_CAMPAIGN_GRACE=0s")
	if _, _, err := b.run(ctx, "campaign", "close", "bench", "--early"); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _, _ = b.run(ctx, "work") // stop kills it; the poll reports whether it has done its work
	}()
	defer func() {
		stop()
		<-ended
	}()
	if _, _, err := b.run(ctx, "campaign", "refund", "bench", "--wait", "5m", "--amount", "0"); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	err := retry.Poll(limit, 100*time.Millisecond, func() (bool, error) {
		n, err := b.fixture.rdb.Exists(limit, b.store.Home("bench").Keys.Campaign("bench")).Result()
		return n == 0, err
	})
	if err != nil {
		return err
	}
	// Workers trim the stream only after trimmer.retention.
	return b.fixture.rdb.XTrimMaxLen(ctx, b.store.Home("bench").Keys.Events(), 0).Err()
}

// fill initializes a deployment, and creates grants that Redis, the ledger and the topic all have.
func (b *auditBench) fill(ctx context.Context) error {
	dsn, _, err := b.db.fresh(ctx)
	if err != nil {
		return err
	}
	if b.store, err = store.New(store.Config{Redis: b.fixture.rdb, Space: hongbao.Space{Prefix: "hb", Shards: 1}}); err != nil {
		return err
	}
	const topic = "audited"
	b.programs = programsOf(b.publishBench, dsn, topic)
	if _, _, err := b.run(ctx, "init"); err != nil {
		return err
	}
	c := spec("bench", b.n)
	c.Limits = []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 1}}
	seed := campaign.NewSeed()
	plan, err := campaign.NewPlan(c, seed)
	if err != nil {
		return err
	}
	entry := ledger.Campaign{Spec: c, Canonical: campaign.Canonical(c), Seed: seed, Hash: campaign.Commit(c, seed)}
	if err := b.settleByCopy(ctx, dsn, entry, plan); err != nil {
		return err
	}
	if _, err := loaded.Seeded(ctx, b.store, c, seed); err != nil {
		return err
	}
	if err := b.grabAll(ctx); err != nil {
		return err
	}
	if _, err := b.fixture.consume(ctx, b.store, "balance", b.n, nothing); err != nil {
		return err
	}
	p, err := b.sink(b.store, topic, "none")
	if err != nil {
		return err
	}
	defer p.Close()
	_, err = b.fixture.consume(ctx, b.store, "kafka", b.n, p)
	return err
}

// grabAll grants all packets in order: packet n goes to user n-1 as event n.
func (b *auditBench) grabAll(ctx context.Context) error {
	call, home := &store.GrabCall{MaxBacklog: 1e9}, b.store.Shard(0).Place("bench")
	var answers []hongbao.Answer
	for i := 0; i < b.n; i += store.MaxGrabs {
		call.Grabs = call.Grabs[:0]
		for u := i; u < min(i+store.MaxGrabs, b.n); u++ {
			call.Grabs = append(call.Grabs, &hongbao.Grab{Campaign: "bench", User: user(u), RequestID: "r"})
		}
		var err error
		if answers, err = home.Grab(ctx, call, answers); err != nil {
			return err
		}
		if last := answers[len(answers)-1].Outcome; last != hongbao.OutcomeGranted {
			return fmt.Errorf("a grab got %s", last)
		}
	}
	return nil
}

// booked has the statements that bring the other tables of the ledger up to date with table grants, as one batch.
var booked = []string{
	`INSERT INTO account (id, kind, currency, balance)
		SELECT 'user:CNY:' || user_id, 'user', 'CNY', amount FROM grants ORDER BY packet`,
	`UPDATE account SET balance = 0 WHERE id = 'pool:bench'`,
	`UPDATE campaign SET granted = funded, grants = packets WHERE id = 'bench'`,
	`INSERT INTO transfer (id, kind, campaign, debit, credit, amount, grants, batch, created_at)
		SELECT 'grants:bench:1', 'grants', id, 'pool:bench', NULL, granted, grants, 1, created_at FROM campaign`,
	`ANALYZE`,
}

// settleByCopy creates a ledger that has settled every packet of the plan, with the same grants as grabAll.
func (b *auditBench) settleByCopy(ctx context.Context, dsn string, c ledger.Campaign, plan *campaign.Plan) error {
	l, _, err := openLedger(ctx, b.db.config(dsn), []ledger.Campaign{c})
	if err != nil {
		return err
	}
	defer l.Close()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	at := 0
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"grants"}, []string{"campaign", "packet", "user_id", "amount", "shard", "seq",
		"epoch", "request_id", "granted_at", "batch"}, pgx.CopyFromFunc(func() ([]any, error) {
		if at == len(plan.Amounts) {
			return nil, nil
		}
		at++
		return []any{c.Spec.ID, int64(at), user(at - 1), int64(plan.Amounts[at-1]), int32(0), int64(at), int64(1), "r",
			c.Spec.From.UnixMilli(), int64(1)}, nil
	}))
	if err != nil {
		return fmt.Errorf("copy %d grants into the ledger: %w", len(plan.Amounts), err)
	}
	for _, sql := range booked {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("book the grants: %w", err)
		}
	}
	return nil
}

// audit runs `hongbao audit`, and returns its peak memory in MB and its report. It returns an error unless everything
// agrees.
func (b *auditBench) audit(ctx context.Context) (peak float64, report model.AuditReport, err error) {
	out, peak, err := b.run(ctx, "audit", "--json")
	if err != nil {
		return peak, report, err
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return peak, report, fmt.Errorf("read the report: %w", err)
	}
	n, t := int64(b.n), &report.Total
	inRedis := len(report.Campaigns) == 1 && report.Campaigns[0].InRedis
	if report.Verdict != model.Agrees || inRedis && (t.Granted != n || t.Published != n) || t.Settled != n ||
		!report.Quiet {
		return peak, report, fmt.Errorf("the audit of %d grants says %s", n, out)
	}
	return peak, report, nil
}
