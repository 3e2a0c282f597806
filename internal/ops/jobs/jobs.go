// Package jobs runs the work of servers that goes on after the answer to its request: loads, audits, replays, decisions
// about dead letters. The ledger has a row for each job, so each server of the deployment lists all jobs, shows their
// results, and can ask for a stop. One job of a name runs at a time; a second request joins it on any server.
//
// The registry never stops work for its own sake: while the ledger is down, a job runs without its row, this server
// shows its own jobs, and the row follows later.
package jobs

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/guard"
	"github.com/hongbao-project/hongbao/internal/base/turn"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
)

const (
	// maxJobs is the maximum number of jobs that run at once on a server, keptHere how many this server lists without the ledger.
	maxJobs, keptHere = 64, 50
	// heartbeat is how often a server stores how far its jobs are, and reads which ones it must stop.
	heartbeat = 2 * time.Second
	// ledgerWait is how long a call waits for the ledger.
	ledgerWait = 2 * time.Second
)

// Rows are the rows of the jobs in the ledger; internal/ledger/access implements them.
type Rows interface {
	BeginJob(ctx context.Context, j *model.Job) (running *model.Job, err error)
	KeepJobs(ctx context.Context, jobs []model.Job) ([]model.Job, error)
	StopJob(ctx context.Context, id, by string) error
	Jobs(ctx context.Context) ([]model.Job, error)
	Job(ctx context.Context, id string) (model.Job, bool, error)
	LastJob(ctx context.Context, name string) (model.Job, bool, error)
}

// Order is work to do as a job.
type Order struct {
	// Name says what the job works on: jobs with the same name are one. Params are its other parameters: while a job runs,
	// an order with its name and other parameters is refused. The ledger gets only their hash.
	Name   string
	Params any
	What   model.Sentence
	// By is the API key of the caller, and Actor is what the journal has of it. Campaign is empty if the job does not belong
	// to one campaign.
	By, Campaign string
	Actor        access.Actor
	// Stopper is the action that a caller must be allowed in order to stop the job; "" for a job that can't be stopped.
	Stopper access.Action
	// Do does the work, and fills the report as far as it came.
	Do func(ctx context.Context, r *Report) error
	// Keep, if not nil, stores the report for a caller who no longer waits when the job ends without an error. Until it
	// has ended, orders with the job's name on this server join the job.
	Keep func(ctx context.Context, r *Report)
}

// Report is the result of a job.
type Report struct {
	Text    string              `json:",omitempty"`
	Letters *model.LetterReport `json:",omitempty"`
	// Again is the form that works on the letters which the job has counted or not finished.
	Again  *Again              `json:",omitempty"`
	Audit  *model.AuditReport  `json:",omitempty"`
	Replay *model.ReplayReport `json:",omitempty"`
	Loaded *ops.Loaded         `json:",omitempty"`
}

// Again is a form that requeues or drops letters: those that a dry run has counted, or those that a job has left over.
type Again struct {
	Action access.Action
	Path   string
	Order  ops.Letters
}

// Registry runs the jobs of this process, and reads those of all. It is safe for concurrent use.
type Registry struct {
	rows  Rows
	owner string
	log   *zap.Logger
	ctx   context.Context //nolint:containedctx // the parent of all jobs' contexts
	end   context.CancelCauseFunc
	wg    sync.WaitGroup

	starting turn.Lock // orders jobs that start, while the ledger is asked for their names
	keeping  turn.Lock // orders writes of the state of all jobs

	mu      sync.Mutex
	runs    []*Run // of this process, the newest first
	tending bool
	audit   auditCache
}

// Run is a job that an order has started or joined.
type Run struct {
	all *Registry
	// here is false if another process runs the job. Then job is how it was when the order joined it.
	here bool
	do   *Order
	stop context.CancelCauseFunc
	done chan struct{}

	// These fields are guarded by all.mu. report and err are final once done is closed.
	job    model.Job
	report Report
	err    error
	left   bool // a caller no longer waits
	open   bool // the job has its name
	stored bool // the ledger has its end
}

// The causes of the end of a job's context.
var (
	errEnds    = errors.New("this server is ending")
	errStopped = errors.New("a person has stopped the job")
	errTaken   = errors.New("this server did not reach the ledger for long, and another one has started the job again")
)

// stoppedBy is the error of a job that a person has stopped. Its class says that a repeat must wait for a person, too: a
// program that repeats its request would start the job again at once.
func stoppedBy(key string, err error) error {
	return hongbao.Errorf(hongbao.ClassConflict, "%w (key:%s); to go on, start it again: %w", errStopped, key, err)
}

// New returns a Registry. owner is the unique name of this process. Close ends the Registry.
func New(rows Rows, owner string, log *zap.Logger) *Registry {
	ctx, end := context.WithCancelCause(context.Background())
	return &Registry{rows: rows, owner: owner, log: log, ctx: ctx, end: end}
}

// Close stops all jobs of this process and waits until they have ended.
func (r *Registry) Close() {
	r.mu.Lock() // makes sure that no job starts after wg.Wait
	r.end(errEnds)
	r.mu.Unlock()
	r.wg.Wait()
}

// Start starts a job, or joins the job that runs under the order's name, on whichever server that is.
func (r *Registry) Start(ctx context.Context, o *Order) (*Run, error) {
	params, err := digest(o.Params)
	if err != nil {
		return nil, fmt.Errorf("write the parameters of job %q: %w", o.Name, err)
	}
	if err := r.starting.LockContext(ctx); err != nil {
		return nil, err
	}
	defer r.starting.Unlock()
	j := model.Job{ID: rand.Text(), Name: o.Name, Order: params, What: o.What, By: o.By, Campaign: o.Campaign,
		Stopper: string(o.Stopper), Owner: r.owner, Began: time.Now().UTC()}
	j.Seen = j.Began
	if x, err := r.find(&j); x != nil || err != nil {
		return x, err
	}
	r.keepEnded(o.Name)
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledgerWait)
	defer cancel()
	switch other, err := r.rows.BeginJob(asking, &j); {
	case err != nil:
		r.log.Warn("a job runs without its row in the ledger; the row follows", zap.String("job", o.Name), zap.Error(err))
	case other == nil || r.runOf(other.ID) != nil: // it has ended here, and the ledger does not know that yet
	case other.Order != j.Order:
		return nil, conflict(&j, other)
	default:
		return &Run{all: r, job: *other}, nil
	}
	return r.run(o, &j)
}

// digest returns the hash of a value's JSON in hexadecimal.
func digest(v any) (string, error) {
	text, err := json.Marshal(v)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// find returns the job of this process that runs under a name, or nil. It returns an error if the new job can't start.
func (r *Registry) find(j *model.Job) (*Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	running := 0
	for _, x := range r.runs {
		switch {
		case x.open && x.job.Name == j.Name && x.job.Order != j.Order:
			return nil, conflict(j, &x.job)
		case x.open && x.job.Name == j.Name:
			return x, nil
		case x.open:
			running++
		}
	}
	if running >= maxJobs {
		return nil, hongbao.Errorf(hongbao.ClassTransient, "this server already runs %d jobs: wait until one ends", maxJobs)
	}
	return nil, nil //nolint:nilnil // there is none
}

// conflict refuses an order with the name of a running job and other parameters. A caller with a scope learns nothing
// about a job of another campaign.
func conflict(want, runs *model.Job) error {
	if want.Campaign != runs.Campaign {
		return hongbao.Errorf(hongbao.ClassConflict, "a job with this name (%s) runs with other parameters: wait for its end, or stop it",
			want.Name)
	}
	return hongbao.Errorf(hongbao.ClassConflict, "%s is running with other parameters (since %s, started by key:%s): wait for its end, or "+
		"stop it", want.Name, runs.Began.Format(time.RFC3339), runs.By)
}

// run starts a job on this process.
func (r *Registry) run(o *Order, j *model.Job) (*Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return nil, hongbao.Errorf(hongbao.ClassTransient, "%w: send the request to another one", errEnds)
	}
	ctx, stop := context.WithCancelCause(r.ctx)
	x := &Run{all: r, here: true, do: o, stop: stop, done: make(chan struct{}), job: *j, open: true}
	r.runs = slices.Insert(r.runs, 0, x)
	r.wg.Go(func() {
		defer stop(nil)
		x.work(app.WithProgress(access.As(ctx, o.Actor), x.progress))
	})
	if !r.tending {
		r.tending = true
		r.wg.Go(r.tend)
	}
	return x, nil
}

// work does the job, and stores how it ended.
func (x *Run) work(ctx context.Context) {
	r := x.all
	var report Report
	err := guard.Call(r.log, func() error { return x.do.Do(ctx, &report) })
	left := x.ended(ctx, &report, err)
	if left && err != nil && ctx.Err() == nil {
		r.log.Warn("a job failed, and its caller no longer waited", zap.String("job", x.do.Name), zap.Error(err))
	}
	r.keep(x)
	if left && err == nil && x.do.Keep != nil {
		_ = guard.Call(r.log, func() error { x.do.Keep(ctx, &report); return nil }) // a repeat does the work again
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x.open = false
	r.forget()
}

// ended notes how the job has ended, and wakes all who wait for it. It reports whether a caller no longer waited.
func (x *Run) ended(ctx context.Context, report *Report, err error) (left bool) {
	text, unwritten := json.Marshal(report.short())
	if unwritten != nil {
		x.all.log.Warn("the report of a job is only on this server", zap.String("job", x.do.Name), zap.Error(unwritten))
	}
	r := x.all
	r.mu.Lock()
	defer r.mu.Unlock()
	x.report, x.err = *report, err
	x.job.Ended, x.job.Result = time.Now().UTC(), text
	if err != nil {
		x.job.Error = err.Error()
	} else if a := report.Audit; a != nil && a.Verdict != model.Agrees {
		x.job.Error = "the audit found differences"
	}
	switch cause := context.Cause(ctx); {
	case err == nil:
	case errors.Is(cause, errTaken):
		x.job.Error = errTaken.Error()
	case errors.Is(cause, errEnds):
		x.job.Lost = true
	case errors.Is(cause, errStopped):
		x.err = stoppedBy(x.job.StopBy, err)
	}
	x.open = x.left && err == nil && x.do.Keep != nil
	close(x.done)
	return x.left
}

// short returns the report without the counts of each campaign, which no page shows and which can be many.
func (r Report) short() Report {
	if r.Audit != nil {
		a := *r.Audit
		a.Campaigns, a.Shards = nil, nil
		r.Audit = &a
	}
	return r
}

// forget drops the oldest jobs that have ended and are in the ledger. The caller holds mu.
func (r *Registry) forget() {
	for i := len(r.runs) - 1; i >= 0 && len(r.runs) > keptHere; i-- {
		if x := r.runs[i]; !x.open && !x.job.Running() && (x.stored || len(r.runs) > keptHere+maxJobs) {
			r.runs = slices.Delete(r.runs, i, i+1)
		}
	}
}

func (x *Run) progress(p app.Progress) {
	x.all.mu.Lock()
	defer x.all.mu.Unlock()
	x.job.Step, x.job.Done, x.job.Of = p.What, p.Done, p.Of
}
