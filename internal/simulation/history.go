package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/ops/books"
	"github.com/hongbao-project/hongbao/internal/simulation/judge"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// Result is what a history showed.
type Result struct {
	Plan    Plan // with the faults of requests that it had
	Err     error
	Notes   []string
	Told    int
	GaveUp  int
	Losses  []string // what reports name: packets withheld, losses accepted
	Virtual time.Duration
	Cover   *Coverage
}

// Options change how a history runs.
type Options struct {
	Dir   string    // for the ledger's file
	Trace io.Writer // nil: no trace
	// Plant, if not nil, changes the stores after the judge and the audit have agreed. Then both must name it.
	Plant *judge.Plant
}

// settleTime is how long after the last fault everything must be final, in virtual time.
const settleTime = 180 * time.Second

// Run runs a history. Call it in a bubble of testing/synctest.
func Run(ctx context.Context, plan Plan, o Options) *Result {
	campaigns := plan.Campaigns
	plan.Campaigns = slices.Clone(campaigns) // a top-up changes them
	w := &world{plan: plan, cover: &Coverage{}, dsn: filepath.Join(o.Dir, fmt.Sprintf("ledger-%d.db", plan.Seed)),
		slots: map[string]*slot{}, alarms: map[string]int{}, lost: map[string]bool{}, todo: map[string]string{},
		above: map[string]int64{}, sinks: []string{balanceSink, kafkaSink}}
	if plan.Hook {
		w.sinks = append(w.sinks, hookSink)
	}
	if plan.has(SinkLate) {
		w.sinks = []string{balanceSink}
	}
	w.db = newDatabase(w.dsn)
	w.net = virtual.NewNet(plan.Seed, plan.how(), w.cover.note, o.Trace)
	r := &Result{Cover: w.cover}
	began := time.Now()
	r.Err = virtual.Sleep(ctx, time.Until(virtual.Epoch))
	if r.Err == nil {
		began = time.Now()
		r.Err = w.history(ctx, r, o.Plant)
	}
	r.Virtual = time.Since(began)
	_ = virtual.Sleep(ctx, 30*time.Second) // go-redis and kafka-go leave dials behind, which end by their timeouts
	for _, f := range []string{"", "-wal", "-shm", ".rows", ".rows-journal"} {
		_ = os.Remove(w.dsn + f)
	}
	for _, bug := range w.bugs {
		r.Err = errors.Join(r.Err, errors.New(bug))
	}
	r.Err = errors.Join(append([]error{r.Err}, w.net.Failures()...)...)
	plan.Faults, plan.Campaigns = w.net.Faults(), campaigns
	w.net.End()
	r.Plan, r.Notes, r.Told, r.GaveUp = plan, w.notes, len(w.told), len(w.gaveUp)
	return r
}

func (w *world) history(ctx context.Context, r *Result, plant *judge.Plant) (err error) {
	defer func() {
		w.hook.close()
		if w.kafka != nil {
			w.kafka.Close()
		}
		if w.redis != nil {
			w.redis.SetClock(0)
			w.redis.Close()
		}
	}()
	if err := w.open(ctx); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	w.net.SetFaulty(true)
	working, stop := context.WithCancel(ctx)
	var processes sync.WaitGroup
	for i := range w.plan.Workers {
		w.newSlot(fmt.Sprintf("w%d", i))
	}
	for i := range w.plan.Producers {
		w.newSlot(fmt.Sprintf("p%d", i))
	}
	for i := range w.plan.Subscribers {
		w.newSlot(fmt.Sprintf("s%d", i))
	}
	for i := range w.plan.Serves {
		w.newSlot(fmt.Sprintf("h%d", i))
		w.cover.note("deed", Serve)
	}
	for _, s := range w.slots {
		processes.Go(func() { s.run(working) })
	}
	processes.Go(func() { w.person(working) })
	if w.plan.has(TopicAgain) {
		processes.Go(func() { w.resetter(working) })
	}
	w.faults(ctx)
	w.note("no more faults; %d receipts were told, %d users gave up", len(w.told), len(w.gaveUp))
	err = w.settle(ctx, r, plant)
	stop()
	processes.Wait()
	w.gateway.client.CloseIdleConnections()
	if err == nil && len(w.accepted) > 0 && !w.mayAsk() {
		err = fmt.Errorf("a person had to accept a loss of the shards %v, although a copy lacked the last writes only", w.accepted)
	}
	if err == nil {
		err = w.falseAlarm()
	}
	if err == nil && len(w.gaveUp) > 0 {
		err = fmt.Errorf("%d requests got no final answer within %s after the last fault", len(w.gaveUp), patience)
	}
	return err
}

// mayAsk reports whether a worker may have to ask a person what becomes of a loss.
func (w *world) mayAsk() bool {
	refunds := len(w.plan.Ends) > 0 || w.plan.has(EndEarly)
	return w.plan.needsPerson() || w.withheldLost && w.plan.hidesTellers() || w.closeLost && refunds
}

// faults lets users grab and deeds happen, and returns when both are over.
func (w *world) faults(ctx context.Context) {
	var all sync.WaitGroup
	t0 := time.Now()
	for i := range w.plan.Deeds {
		d := &w.plan.Deeds[i]
		all.Go(func() {
			if virtual.Sleep(ctx, time.Until(t0.Add(d.At))) == nil {
				_ = w.do(ctx, d)
			}
		})
	}
	all.Go(func() {
		_ = virtual.Sleep(ctx, w.plan.Faulty)
		w.net.SetFaulty(false)
	})
	for u := range w.plan.Users {
		all.Go(func() { w.user(ctx, u) })
	}
	all.Wait()
}

// settle waits until the judge agrees, and returns what it still misses after settleTime. Then the audit must agree. It
// does so again after the end of campaigns.
func (w *world) settle(ctx context.Context, r *Result, plant *judge.Plant) error {
	j, err := judge.Open(&judge.Stores{Dial: w.net.NewProc("judge").Dial, Redis: virtual.RedisAddr, Kafka: kafkaAddr,
		Topic: kafkaTopic, Ledger: w.dsn, Rows: w.rows.path(), Partitions: w.plan.Shards})
	if err != nil {
		return err
	}
	defer j.Close()
	if err := errors.Join(w.resumeAgain(ctx), w.refill(ctx), w.judge(ctx, j, r)); err != nil {
		return err
	}
	if plant != nil {
		return w.plant(ctx, j, plant)
	}
	w.mu.Lock()
	restored := w.alarms["redis_restored"] > 0
	w.mu.Unlock()
	if w.plan.Holes && restored {
		if err := errors.Join(w.decideHoles(ctx), w.judge(ctx, j, r)); err != nil {
			return err
		}
	}
	if len(w.plan.ended()) == 0 {
		return nil
	}
	if err := w.end(ctx); err != nil {
		return err
	}
	return w.judge(ctx, j, r)
}

// judge waits for the judge, and then asks the audit.
func (w *world) judge(ctx context.Context, j *judge.Judge, r *Result) error {
	for end := time.Now().Add(settleTime); ; {
		found, err := j.Judge(ctx, w.facts())
		if err != nil {
			return fmt.Errorf("judge: %w", err)
		}
		w.mu.Lock()
		for id, what := range w.todo {
			found.Missing = append(found.Missing, "a person could not finish "+what+" "+id)
		}
		w.mu.Unlock()
		r.Losses = found.Losses
		switch {
		case len(found.Wrong) > 0:
			return fmt.Errorf("judge: %s", some(found.Wrong))
		case len(found.Missing) == 0 && found.Unpaid > w.named && !w.plan.hidesTellers():
			return fmt.Errorf("%d told packets are not paid, and the accepted reports name %d", found.Unpaid, w.named)
		case len(found.Missing) == 0:
			if found.NotOwed > 0 {
				w.cover.note("delivery", lacksUnowed)
			}
			if err := w.audit(ctx); !errors.Is(err, errLetterWaits) || time.Now().After(end) {
				return err
			}
		case time.Now().After(end):
			return fmt.Errorf("not final after %s: %s", settleTime, some(found.Missing))
		}
		if err := virtual.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// facts returns what the users were told, and of which campaigns a person accepted a loss, up to now.
func (w *world) facts() *judge.Facts {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := &judge.Facts{Told: slices.Clone(w.told), GaveUp: slices.Clone(w.gaveUp),
		Above: maps.Clone(w.above), Decided: w.decided, TopicAgain: w.plan.has(TopicAgain), RedisLoses: w.plan.losesRedis(),
		SinkMoves: w.plan.changesSinks(), OwedAfter: w.owedAfter, Twice: w.twice,
		Hook: w.plan.Hook, Posted: w.hook.all()}
	for _, c := range w.plan.Campaigns {
		f.Campaigns = append(f.Campaigns, judge.Campaign{ID: c.ID, Packets: c.Packets, Total: c.Packets * price,
			Hold: c.Hold, Lost: w.lost[c.ID]})
	}
	return f
}

func some(lines []string) string { return strings.Join(lines[:min(5, len(lines))], "; ") }

// audit runs `hongbao audit`. It must agree once everything is quiet. It may name campaigns of which a person has
// accepted a loss, and the shards of that loss.
func (w *world) audit(ctx context.Context) error {
	report, err := w.auditOnce(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range report.Differences {
		if w.aboutTwice(&report.Differences[i]) {
			continue
		}
		if kind := report.Differences[i].Kind; w.plan.has(Refusal) && (kind == audit.DeadLetter || kind == audit.OpenClaim) {
			return errLetterWaits // a requeue of the letters also ends the claim of a requeue that died
		}
		if d := &report.Differences[i]; d.Campaign == "" && len(w.accepted) == 0 || d.Campaign != "" && !w.lost[d.Campaign] {
			return fmt.Errorf("the judge agrees, and the audit says %s, found %v, for one %+v", report.Verdict, report.Found, *d)
		}
	}
	return nil
}

func (w *world) auditOnce(ctx context.Context) (report *model.AuditReport, err error) {
	for end := time.Now().Add(settleTime); ; {
		err = w.with(ctx, "auditor", app.Needs{Redis: true, Ledger: true}, func(a *app.App) (err error) {
			report, err = books.Of(a).Audit(ctx, audit.Options{})
			return err
		})
		if err == nil && report.Quiet {
			return report, nil
		}
		if time.Now().After(end) {
			return nil, errors.Join(errors.New("the audit finds no quiet moment"), err)
		}
		_ = virtual.Sleep(ctx, time.Second)
	}
}

// plant changes the stores, and returns an error unless the judge and the audit name the difference.
func (w *world) plant(ctx context.Context, j *judge.Judge, plant *judge.Plant) error {
	if err := j.Do(ctx, plant); err != nil {
		return fmt.Errorf("plant %s: %w", plant.Name, err)
	}
	found, err := j.Judge(ctx, w.facts())
	if err != nil {
		return fmt.Errorf("judge: %w", err)
	}
	if len(found.Missing)+len(found.Wrong) == 0 {
		return fmt.Errorf("planted: %s: the judge does not see it", plant.Name)
	}
	report, err := w.auditOnce(ctx)
	if err != nil {
		return err
	}
	if report.Verdict == model.Agrees {
		return fmt.Errorf("planted: %s: the audit agrees, and the judge says %s", plant.Name,
			some(append(found.Missing, found.Wrong...)))
	}
	return nil
}
