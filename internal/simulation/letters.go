package simulation

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	_ "modernc.org/sqlite" // the ledger's driver

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// errLetterWaits says that the audit names a dead letter, or the claim of a requeue that died. A person will requeue the
// letters.
var errLetterWaits = errors.New("the audit names a dead letter")

// refused returns the users whom a sink refuses during a Refusal: a sixth of all.
func (w *world) refused() (users []string) {
	for u := int(w.plan.Seed % 6); u < w.plan.Users; u += 6 {
		users = append(users, fmt.Sprintf("u%d", u))
	}
	return users
}

// prepareRefusals makes both sinks ready to refuse users for good. A trigger of the database refuses rows of the ledger:
// the error is Permanent. The broker refuses records as invalid.
func (w *world) prepareRefusals(ctx context.Context) error {
	if !w.plan.has(Refusal) {
		return nil
	}
	w.kafka.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r, is := req.(*kmsg.ProduceRequest)
		if !is || !w.refuses(r) {
			return nil, nil, false
		}
		w.kafka.KeepControl()
		resp, _ := r.ResponseKind().(*kmsg.ProduceResponse)
		for i := range r.Topics {
			t := kmsg.NewProduceResponseTopic()
			t.Topic, t.TopicID = r.Topics[i].Topic, r.Topics[i].TopicID
			for j := range r.Topics[i].Partitions {
				p := kmsg.NewProduceResponseTopicPartition()
				p.Partition, p.ErrorCode = r.Topics[i].Partitions[j].Partition, kerr.InvalidRecord.Code
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil, true
	})
	return w.inLedger(ctx, `CREATE TABLE simulation_refused (user_id TEXT)`,
		`CREATE TRIGGER simulation_refuse BEFORE INSERT ON grants
			WHEN EXISTS (SELECT 1 FROM simulation_refused WHERE user_id = NEW.user_id)
			BEGIN SELECT RAISE(ABORT, 'the account is closed'); END`)
}

// refuses reports whether the broker refuses a batch.
func (w *world) refuses(r *kmsg.ProduceRequest) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.kafkaRefuses {
		return false
	}
	for _, user := range w.refused() {
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				if bytes.Contains(r.Topics[i].Partitions[j].Records, fmt.Appendf(nil, `"user":%q`, user)) {
					return true
				}
			}
		}
	}
	return false
}

// inLedger changes the ledger's database by hand. It doesn't wait for locks inside of SQLite, where virtual time stands.
func (w *world) inLedger(ctx context.Context, statements ...string) error {
	file := url.URL{Scheme: "file", OmitHost: true, Path: w.dsn, RawQuery: "mode=rw&_txlock=immediate&_pragma=busy_timeout(0)"}
	db, err := sql.Open("sqlite", file.String())
	if err != nil {
		return err
	}
	defer db.Close()
	for end := time.Now().Add(patience); ; {
		if err = inOne(ctx, db, statements); err == nil || time.Now().After(end) {
			return err
		}
		if ended := virtual.Sleep(ctx, 20*time.Millisecond); ended != nil {
			return ended
		}
	}
}

func inOne(ctx context.Context, db *sql.DB, statements []string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// refuse lets a sink refuse users for a while.
func (w *world) refuse(ctx context.Context, d *Deed) error {
	if err := w.setRefusing(ctx, d.Who, true); err != nil {
		w.bug("refuse: %v", err)
		return err
	}
	_ = virtual.Sleep(ctx, d.For)
	if err := w.setRefusing(ctx, d.Who, false); err != nil {
		w.bug("refuse no more: %v", err)
		return err
	}
	return nil
}

func (w *world) setRefusing(ctx context.Context, sink string, on bool) error {
	if sink == kafkaSink {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.kafkaRefuses = on
		return nil
	}
	statements := []string{`DELETE FROM simulation_refused`}
	for _, user := range w.refused() {
		if on {
			statements = append(statements, fmt.Sprintf(`INSERT INTO simulation_refused VALUES ('%s')`, user))
		}
	}
	return w.inLedger(ctx, statements...)
}

// decideLetters does what the alert about dead letters names: a person counts the letters of a sink, and requeues them.
// Each third command dies on the way.
func (w *world) decideLetters(ctx context.Context, round int) {
	if !w.plan.has(Refusal) {
		return
	}
	for _, sink := range w.present() {
		run := w.command
		if round%3 == 1 {
			run = func(ctx context.Context, do func(context.Context, *app.App) error) error {
				return w.dies(ctx, time.Duration(w.plan.Seed%40)*5*time.Millisecond, do)
			}
		}
		err := run(ctx, func(ctx context.Context, a *app.App) error { return w.requeue(ctx, a, sink) })
		if err != nil {
			w.note("hongbao dead requeue --sink %s: %v", sink, err)
		}
	}
}

func (w *world) requeue(ctx context.Context, a *app.App, sink string) error {
	if err := a.Ready(ctx, app.Needs{Redis: true, Ledger: true}); err != nil {
		return err
	}
	o := deliveries.Requeue{Pick: deadletter.Pick{Filter: deadletter.Filter{Sinks: []string{sink}}}, Decision: ann,
		Patience: 3 * time.Second, DryRun: true}
	counted, err := deliveries.Of(a).Requeue(ctx, o)
	if err != nil || counted.Matched == 0 {
		return err
	}
	o.DryRun, o.Pick.Expect = false, &counted.Matched
	report, err := deliveries.Of(a).Requeue(ctx, o)
	if report == nil {
		return err
	}
	if report.Resolved > 0 {
		w.cover.note("person", requeued(sink))
	}
	if report.Failed > 0 {
		w.cover.note("person", requeued(sink)+", refused again")
		err = errors.Join(err, fmt.Errorf("%d were refused again", report.Failed))
	}
	return err
}
