package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/guard"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest/opened"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"

	kept "github.com/hongbao-project/hongbao/internal/ledger/access"
)

// ledger is a ledger that servers share. While it is down, a server's calls fail.
type ledger struct {
	*opened.Fixture
	log  *zap.Logger
	logs *observer.ObservedLogs
}

func newLedger(t *testing.T) *ledger {
	core, logs := observer.New(zapcore.InfoLevel)
	return &ledger{opened.On(t, ledgertest.SQLite(t)), zap.New(core), logs}
}

// rows are the rows of a server that may lose its ledger.
type rows struct {
	Rows
	down atomic.Bool
}

var errDown = hongbao.Outagef(hongbao.ClassTransient, "the ledger is down")

func (r *rows) BeginJob(ctx context.Context, j *model.Job) (*model.Job, error) {
	if r.down.Load() {
		return nil, errDown
	}
	return r.Rows.BeginJob(ctx, j)
}

func (r *rows) KeepJobs(ctx context.Context, all []model.Job) ([]model.Job, error) {
	if r.down.Load() {
		return nil, errDown
	}
	return r.Rows.KeepJobs(ctx, all)
}

func (r *rows) Jobs(ctx context.Context) ([]model.Job, error) {
	if r.down.Load() {
		return nil, errDown
	}
	return r.Rows.Jobs(ctx)
}

// server returns the jobs of a server.
func (l *ledger) server(t *testing.T, name string) (*Registry, *rows) {
	r := &rows{Rows: kept.Of(l.Tables())}
	all := New(r, name, l.log)
	t.Cleanup(all.Close)
	return all, r
}

// silent makes the heartbeat of a job older than a job may be.
func (l *ledger) silent(t *testing.T, id string) {
	l.Tamper(t, db.Stmt{SQL: `UPDATE job SET seen_at = seen_at - $2 WHERE id = $1`, Args: []any{id, kept.JobLost.Milliseconds() + 1000}})
}

// lasting returns an order whose job runs until it is stopped, or until release is closed. Then it has a report.
func lasting(name string, params any) (o *Order, release chan struct{}) {
	release = make(chan struct{})
	return &Order{Name: name, Params: params, What: model.Say("Load of %s", "rain"), By: "ann", Campaign: "rain", Stopper: access.LoadCampaign,
		Do: func(ctx context.Context, r *Report) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-release:
				r.Text = "all is loaded"
				return nil
			}
		}}, release
}

func (r *Registry) starts(t *testing.T, o *Order) *Run {
	t.Helper()
	x, err := r.Start(t.Context(), o)
	require.NoError(t, err)
	return x
}

func (r *Registry) finds(t *testing.T, id string) *Job {
	t.Helper()
	j, err := r.Find(t.Context(), id, &access.Caller{})
	require.NoError(t, err)
	require.NotNil(t, j)
	return j
}

// A job that one server runs is listed, shown and stopped by another one.
func TestJobIsShownAndStoppedByAnotherServer(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	a, _ := l.server(t, "a")
	b, _ := l.server(t, "b")
	o, _ := lasting("load rain", nil)
	do := o.Do
	o.Do = func(ctx context.Context, r *Report) error {
		p := (&app.App{}).LongCall(ctx, "loading rain", 10)
		p.Set(7)
		return do(ctx, r)
	}
	x := a.starts(t, o)
	list, err := b.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.True(t, list[0].Running())
	require.Equal(t, []string{"a", "ann", "rain"}, []string{list[0].Owner, list[0].By, list[0].Campaign})
	testkit.Eventually(t, 30*time.Second, func() bool {
		j := b.finds(t, list[0].ID)
		return j.Step == "loading rain" && j.Done == 7 && j.Of == 10
	}, "the heartbeat tells the progress")

	joined := b.starts(t, o)
	require.NoError(t, b.Stop(t.Context(), list[0].ID, "bob", time.Minute))
	_, err = x.Wait(t.Context(), time.Minute)
	require.ErrorIs(t, err, context.Canceled)
	for _, waits := range []*Run{x, joined} { // a program must not start it again at once
		_, err = waits.Wait(t.Context(), time.Minute)
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err))
		require.ErrorContains(t, err, "a person has stopped the job (key:bob)")
	}
	j := b.finds(t, list[0].ID)
	require.Equal(t, []any{false, false, "bob"}, []any{j.Running(), j.Lost, j.StopBy})
}

// A second order joins the job on any server, and gets its report. The same name with other parameters is refused.
func TestJobIsJoinedByAnotherServer(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	a, _ := l.server(t, "a")
	b, _ := l.server(t, "b")
	o, release := lasting("load rain", 1)
	first := a.starts(t, o)
	require.Same(t, first, a.starts(t, o))
	joined := b.starts(t, o)
	require.False(t, joined.Here())
	require.Equal(t, first.Job().ID, joined.Job().ID)
	_, err := joined.Wait(t.Context(), time.Millisecond)
	require.ErrorIs(t, err, ErrRuns)
	other, _ := lasting("load rain", 2)
	for _, r := range []*Registry{a, b} {
		_, err = r.Start(t.Context(), other)
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err))
		require.ErrorContains(t, err, "with other parameters (since ")
		require.ErrorContains(t, err, "started by key:ann")
	}
	other.Campaign = "snow"
	_, err = b.Start(t.Context(), other)
	require.ErrorContains(t, err, "with other parameters")
	require.NotContains(t, err.Error(), "ann", "who may not see the campaign learns nothing")

	close(release)
	report, err := joined.Wait(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Equal(t, "all is loaded", report.Text)
	require.Equal(t, "all is loaded", b.finds(t, joined.Job().ID).Report.Text)
	again := b.starts(t, o)
	require.True(t, again.Here(), "the name is free")
	_, err = again.Wait(t.Context(), time.Minute)
	require.NoError(t, err)
	require.NotSame(t, again, b.starts(t, o), "an order that comes after the end is another job")
}

// A job whose process was killed has ended with it, and starts again anywhere. So has one that its server stopped when it
// ended.
func TestJobEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	a, _ := l.server(t, "a")
	b, _ := l.server(t, "b")
	killed := model.Job{ID: "killed", Name: "load rain", Owner: "dead", Began: time.Now()}
	_, err := kept.Of(l.Tables()).BeginJob(t.Context(), &killed)
	require.NoError(t, err)
	o, release := lasting("load rain", nil)
	joined, err := b.Start(t.Context(), &Order{Name: "load rain", Params: []int{}})
	require.Error(t, err)
	require.Nil(t, joined)
	l.silent(t, "killed")
	require.True(t, b.finds(t, "killed").Lost)
	x := a.starts(t, o)
	require.True(t, x.Here())
	_, err = (&Run{all: b, job: killed}).Wait(t.Context(), time.Minute)
	require.ErrorIs(t, err, ErrElsewhere, "whoever waited for it starts it again")

	a.Close()
	j := b.finds(t, x.Job().ID)
	require.True(t, j.Lost)
	require.False(t, j.Running())
	require.True(t, b.starts(t, o).Here())
	close(release)
	_, err = a.Start(t.Context(), &Order{Name: "x"})
	require.ErrorContains(t, err, "this server is ending: send the request to another one")
}

// While the ledger is down, jobs run and this server shows them. Their rows follow. A server that was cut off for long
// stops a job that another one has started again.
func TestJobsWithoutTheLedger(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	a, ledger := l.server(t, "a")
	b, _ := l.server(t, "b")
	ledger.down.Store(true)
	o, release := lasting("load rain", nil)
	x := a.starts(t, o)
	list, err := a.List(t.Context())
	require.ErrorIs(t, err, errDown)
	require.Len(t, list, 1)
	close(release)
	report, err := x.Wait(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Equal(t, "all is loaded", report.Text)
	require.Equal(t, "all is loaded", a.finds(t, x.Job().ID).Report.Text)
	ledger.down.Store(false)
	testkit.Eventually(t, 30*time.Second, func() bool {
		list, err := b.List(t.Context())
		require.NoError(t, err)
		return len(list) == 1 && !list[0].Running()
	}, "the row follows")

	o, _ = lasting("load snow", nil)
	x = a.starts(t, o)
	ledger.down.Store(true)
	l.silent(t, x.Job().ID)
	again := b.starts(t, o)
	require.True(t, again.Here())
	ledger.down.Store(false)
	_, err = x.Wait(t.Context(), time.Minute)
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, x.Job().Error, "another one has started the job again")
	require.True(t, b.finds(t, again.Job().ID).Running())
}

// A server runs a bounded number of jobs. A failure is logged if the caller no longer waits for it.
func TestManyJobs(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	a, _ := l.server(t, "a")
	orders := make([]*Run, maxJobs)
	for i := range orders {
		o, _ := lasting(fmt.Sprint("load c", i), nil)
		orders[i] = a.starts(t, o)
	}
	o, _ := lasting("one more", nil)
	_, err := a.Start(t.Context(), o)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	for i := range 2 {
		require.NoError(t, a.Stop(t.Context(), orders[i].Job().ID, "ann", time.Minute))
	}
	for _, heard := range []bool{true, false} {
		fail := make(chan struct{})
		x := a.starts(t, &Order{Name: fmt.Sprint("fails, heard: ", heard), Do: func(context.Context, *Report) error {
			<-fail
			return errors.New("no luck")
		}})
		if !heard {
			_, err = x.Wait(t.Context(), 0)
			require.ErrorIs(t, err, ErrRuns)
		}
		close(fail)
		_, err = x.Wait(t.Context(), time.Minute)
		require.ErrorContains(t, err, "no luck")
	}
	a.Close()
	require.Equal(t, 1, l.logs.FilterMessage("a job failed, and its caller no longer waited").Len())
	list, err := a.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, keptHere)
}

// A panic in a job, or in what stores its report, ends that job only.
func TestPanickingJob(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	a, _ := l.server(t, "a")
	x := a.starts(t, &Order{Name: "a", Do: func(context.Context, *Report) error { panic("a bug") }})
	_, err := x.Wait(t.Context(), time.Minute)
	require.ErrorIs(t, err, guard.ErrPanic)
	o, release := lasting("b", nil)
	o.Keep = func(context.Context, *Report) { panic("a bug") }
	x = a.starts(t, o)
	_, err = x.Wait(t.Context(), 0)
	require.ErrorIs(t, err, ErrRuns)
	close(release)
	_, err = x.Wait(t.Context(), time.Minute)
	require.NoError(t, err)
	testkit.Eventually(t, 30*time.Second, func() bool {
		again := a.starts(t, o)
		return again != x && again.Here()
	}, "the name is free again")
	a.Close()
	require.Equal(t, 2, l.logs.FilterField(zap.String("code", "handler_panicked")).Len())
}

// A caller with a scope sees their own jobs and those about campaigns in the scope, on each server.
func TestJobsOutsideOfTheScope(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	a, _ := l.server(t, "a")
	b, _ := l.server(t, "b")
	o, _ := lasting("load rain", nil)
	id := a.starts(t, o).Job().ID
	for _, r := range []*Registry{a, b} {
		for who, sees := range map[*access.Caller]bool{{}: true, {Campaigns: []string{"rain"}}: true, {Campaigns: []string{"snow"}}: false,
			{Key: "ann", Campaigns: []string{"snow"}}: true} {
			j, err := r.Find(t.Context(), id, who)
			require.NoError(t, err)
			require.Equal(t, sees, j != nil, "%+v", who)
		}
		j, err := r.Find(t.Context(), "none", &access.Caller{})
		require.NoError(t, err)
		require.Nil(t, j)
	}
}

// The differences of the last audit are known on each server. A report keeps no counts of campaigns, of which there may be
// many.
func TestLastAuditOnEachServer(t *testing.T) {
	t.Parallel()
	l := newLedger(t)
	a, _ := l.server(t, "a")
	b, _ := l.server(t, "b")
	began := time.Unix(1_800_000_000, 123_456_789)
	x := a.starts(t, &Order{Name: AuditName, Do: func(_ context.Context, r *Report) error {
		r.Audit = &model.AuditReport{Verdict: model.Differs, Started: began, Campaigns: make([]model.CampaignReport, 1000),
			Differences: []model.Difference{{Campaign: "rain"}}}
		return nil
	}})
	report, err := x.Wait(t.Context(), time.Minute)
	require.NoError(t, err)
	require.Len(t, report.Audit.Campaigns, 1000)
	testkit.Eventually(t, 30*time.Second, func() bool { return b.finds(t, x.Job().ID).Error == "the audit found differences" }, "it is stored")
	for _, r := range []*Registry{a, b} {
		require.Equal(t, "rain", r.AuditOf(t.Context(), began.Truncate(time.Millisecond)).Differences[0].Campaign)
		require.Nil(t, r.AuditOf(t.Context(), began.Add(time.Hour)), "a command ran that one")
	}
	require.Empty(t, b.finds(t, x.Job().ID).Report.Audit.Campaigns)
}
