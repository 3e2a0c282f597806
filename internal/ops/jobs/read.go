package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/model"
)

// Job is a job with its report.
type Job struct {
	model.Job
	Report Report
}

// The errors of Wait besides that of the job.
var (
	// ErrRuns says that the job goes on.
	ErrRuns = errors.New("the job goes on")
	// ErrElsewhere says that another process has ended the job, and that its report is not known here. Whoever needs the
	// report starts the job again.
	ErrElsewhere = errors.New("the job has ended on another server, which has its report")
)

// lookEvery is how often Wait looks for the end of a job of another process.
const lookEvery = 500 * time.Millisecond

// Wait waits up to the duration most for the report of a job.
func (x *Run) Wait(ctx context.Context, most time.Duration) (*Report, error) {
	if !x.here {
		return x.waitElsewhere(ctx, most)
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-x.done:
		return &x.report, x.err
	case <-timer.C:
	case <-ctx.Done():
	}
	x.all.mu.Lock()
	defer x.all.mu.Unlock()
	select {
	case <-x.done: // just now
		return &x.report, x.err
	default:
		x.left = true
		return nil, ErrRuns
	}
}

func (x *Run) waitElsewhere(ctx context.Context, most time.Duration) (report *Report, err error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var stopped error
	waited := retry.Poll(ctx, lookEvery, func() (bool, error) {
		j, found, err := x.all.rows.Job(ctx, x.job.ID)
		if err != nil || found && j.Running() {
			return false, nil //nolint:nilerr // the ledger may be back soon
		}
		if j.StopBy != "" && j.Error != "" {
			stopped = stoppedBy(j.StopBy, errors.New(j.Error))
		}
		if report = reportOf(&j); !found || j.Lost || j.Error != "" {
			report = nil
		}
		return true, nil
	})
	switch {
	case waited != nil:
		return nil, ErrRuns
	case stopped != nil:
		return nil, stopped
	case report == nil:
		return nil, ErrElsewhere
	}
	return report, nil
}

// reportOf returns the report in a row, or nil.
func reportOf(j *model.Job) *Report {
	var r Report
	if len(j.Result) == 0 || json.Unmarshal(j.Result, &r) != nil {
		return nil
	}
	return &r
}

// Here reports whether this process runs the job.
func (x *Run) Here() bool { return x.here }

// Job returns the job.
func (x *Run) Job() model.Job {
	x.all.mu.Lock()
	defer x.all.mu.Unlock()
	return x.job
}

// List returns the jobs of all servers: those that run, then the newest. If the ledger can't be read, it returns those of this process, and the
// error.
func (r *Registry) List(ctx context.Context) ([]Job, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerWait)
	defer cancel()
	rows, err := r.rows.Jobs(ctx)
	r.mu.Lock()
	list := make([]Job, 0, len(r.runs)+len(rows))
	for _, x := range r.runs {
		list = append(list, Job{Job: x.job})
	}
	r.mu.Unlock()
	for i := range rows {
		here := func(j Job) bool { return j.ID == rows[i].ID }
		if !slices.ContainsFunc(list, here) {
			list = append(list, Job{Job: rows[i]})
		}
	}
	slices.SortStableFunc(list, func(a, b Job) int {
		switch {
		case a.Running() && !b.Running():
			return -1
		case b.Running() && !a.Running():
			return 1
		}
		return b.Began.Compare(a.Began)
	})
	return list[:min(len(list), keptHere)], err
}

// Find returns a job, or nil if there is none for the caller. A caller with a scope sees only their own jobs and those
// about campaigns in the scope.
func (r *Registry) Find(ctx context.Context, id string, who *access.Caller) (*Job, error) {
	j, err := r.job(ctx, id)
	if err != nil || j == nil || who.Scoped() && j.By != who.Key && (j.Campaign == "" || !who.Sees(j.Campaign)) {
		return nil, err
	}
	return j, nil
}

func (r *Registry) job(ctx context.Context, id string) (*Job, error) {
	if x := r.runOf(id); x != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		return &Job{x.job, x.report}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerWait)
	defer cancel()
	row, found, err := r.rows.Job(ctx, id)
	if err != nil || !found {
		return nil, err
	}
	j := &Job{Job: row}
	if report := reportOf(&row); report != nil {
		j.Report = *report
	}
	return j, nil
}

// runOf returns a job of this process, or nil.
func (r *Registry) runOf(id string) *Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.runs {
		if x.job.ID == id {
			return x
		}
	}
	return nil
}

// Stop asks a job to stop, on whichever server it runs, and waits for its end up to the duration most. It returns ErrRuns
// if the job has not ended by then.
func (r *Registry) Stop(ctx context.Context, id, by string, most time.Duration) error {
	x := r.runOf(id)
	if x != nil {
		r.mu.Lock()
		x.stopFor(by)
		r.mu.Unlock()
	} else {
		if err := r.rows.StopJob(ctx, id, by); err != nil {
			return err
		}
		x = &Run{all: r, job: model.Job{ID: id}}
	}
	if _, err := x.Wait(ctx, most); errors.Is(err, ErrRuns) {
		return err
	}
	return nil
}

// auditCache is the report of the last audit. asked is when the ledger was asked for it.
type auditCache struct {
	report *model.AuditReport
	asked  time.Time
}

// askAgain is how long a missing report of an audit stays missing.
const askAgain = 5 * time.Second

// AuditOf returns the report of the audit that began at a time, or nil if no server has it: a command may have run it.
func (r *Registry) AuditOf(ctx context.Context, began time.Time) *model.AuditReport {
	is := func(a *model.AuditReport) bool { // Redis keeps when an audit began in milliseconds
		return a != nil && a.Started.Truncate(time.Millisecond).Equal(began)
	}
	r.mu.Lock()
	cached := r.audit
	for _, x := range r.runs {
		if is(x.report.Audit) {
			cached.report = x.report.Audit
		}
	}
	r.mu.Unlock()
	if is(cached.report) {
		return cached.report
	}
	if began.IsZero() || time.Since(cached.asked) < askAgain {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerWait)
	defer cancel()
	row, _, err := r.rows.LastJob(ctx, AuditName)
	now := auditCache{asked: time.Now()}
	if report := reportOf(&row); err == nil && report != nil {
		now.report = report.Audit
	}
	r.mu.Lock()
	r.audit = now
	r.mu.Unlock()
	if is(now.report) {
		return now.report
	}
	return nil
}

// AuditName is the name of the job of each audit.
const AuditName = "audit"
