package console

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/guard"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
)

const (
	// jobWait is how long a request waits for the end of a job. After that the page shows the progress.
	jobWait = 3 * time.Second
	// maxJobs is the maximum number of running jobs, keptJobs the maximum number of jobs that pages show.
	maxJobs, keptJobs = 4, 50
)

// Job is work that a user started from a page. It continues after the user leaves the page, and is canceled
// when the server stops.
type Job struct {
	ID       int
	What     model.Sentence
	By       string
	Campaign string // empty if the job does not belong to one campaign
	Began    time.Time
	Took     time.Duration // 0 while the job runs
	// Text is the result, Error the error. Both are set if only a part of the work was done.
	Text, Error string
	// Stopper is the action that a caller must be allowed in order to stop the job; "" for a job that can't be stopped.
	Stopper access.Action
	Letters *model.LetterReport
	Audit   *model.AuditReport
	// Again is the form that works on the letters which this job has counted or not finished; nil for other
	// jobs.
	Again *Again

	// If joins is set and a job with this name is running, a second request gets that job. If auditing is set, the
	// job does not count towards maxJobs.
	joins, auditing bool
	stop            context.CancelFunc
	ended           chan struct{}
}

// Again is a form that requeues or drops letters: those that a dry run has counted, or those that a job has
// left over.
type Again struct {
	Action access.Action
	Path   string
	Order  ops.Letters
}

// Running reports whether the job is still running.
func (j *Job) Running() bool { return j.Took == 0 }

// jobs manages the jobs of this process. The list has the newest job first.
type jobs struct {
	ctx    context.Context
	cancel context.CancelFunc
	log    *zap.Logger
	wg     sync.WaitGroup

	mu    sync.Mutex
	list  []*Job
	count int
	audit *model.AuditReport // the result of the last audit
}

var errManyJobs = errors.New("this console already runs four jobs: wait until one of them ends")

func newJobs(log *zap.Logger) *jobs {
	ctx, cancel := context.WithCancel(context.Background())
	return &jobs{ctx: ctx, cancel: cancel, log: log}
}

// start starts a job, or returns the running job that want joins.
func (s *jobs) start(want Job, do func(ctx context.Context, j *Job) error) (*Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := 0
	for _, j := range s.list {
		switch {
		case j.Running() && want.joins && j.What.String() == want.What.String():
			return j, nil
		case j.Running() && !j.auditing:
			running++
		}
	}
	if running >= maxJobs && !want.auditing {
		return nil, errManyJobs
	}
	if err := s.ctx.Err(); err != nil {
		return nil, fmt.Errorf("this server is ending: %w", err)
	}
	s.count++
	j := &want
	j.ID, j.Began, j.ended = s.count, time.Now(), make(chan struct{})
	s.list = append([]*Job{j}, s.list[:min(len(s.list), keptJobs-1)]...)
	ctx, stop := context.WithCancel(s.ctx)
	j.stop = stop
	s.wg.Go(func() {
		defer stop()
		s.run(ctx, j, do)
	})
	return j, nil
}

// run does the work on a copy of the job, so that pages never see a half-written result.
func (s *jobs) run(ctx context.Context, j *Job, do func(context.Context, *Job) error) {
	work := *j
	err := guard.Call(s.log, func() error { return do(ctx, &work) })
	s.mu.Lock()
	defer s.mu.Unlock()
	j.Text, j.Letters, j.Audit, j.Again = work.Text, work.Letters, work.Audit, work.Again
	if err != nil {
		j.Error = err.Error()
	}
	j.Took = max(time.Since(j.Began), 1)
	if j.Audit != nil {
		s.audit = j.Audit
	}
	close(j.ended)
}

// wait waits up to jobWait for the end of a job, and returns the job's state.
func (s *jobs) wait(ctx context.Context, j *Job) Job {
	wait := time.NewTimer(jobWait)
	defer wait.Stop()
	select {
	case <-j.ended:
	case <-wait.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return *j
}

func (s *jobs) all() []Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Job, len(s.list))
	for i, j := range s.list {
		list[i] = *j
	}
	return list
}

// find returns a copy of a job, or nil if there is none. A caller with a scope sees only their own jobs and those
// about campaigns in the scope.
func (s *jobs) find(id string, who *access.Caller) *Job {
	for _, j := range s.all() {
		if strconv.Itoa(j.ID) == id && (!who.Scoped() || j.By == who.Key || j.Campaign != "" && who.Sees(j.Campaign)) {
			return &j
		}
	}
	return nil
}

// lastAudit returns the result of the last audit that this process ran, or nil.
func (s *jobs) lastAudit() *model.AuditReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.audit
}

// close cancels all jobs and waits until they have ended.
func (s *jobs) close() {
	s.mu.Lock() // the lock makes sure that no job starts after wg.Wait
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
}
