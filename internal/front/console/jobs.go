package console

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/ops"
)

const (
	// patience is how long a page waits for the end of a job; after that it shows the progress.
	patience = 3 * time.Second
	// maxJobs bounds the running jobs, keptJobs the shown ones.
	maxJobs, keptJobs = 4, 50
)

// Job is work that a page has begun. It continues when the user leaves the page, and ends with the server.
type Job struct {
	ID       int
	What, By string
	Campaign string // the campaign of the job; empty for other jobs
	Began    time.Time
	Took     time.Duration // 0 while it runs
	// Text is the result, Error the failure. Both may be set: a part of the work is done.
	Text, Error string
	Letters     *deadletter.Report
	Audit       *audit.Report
	// Again begins work on counted letters, or continues it if it has ended too early; nil for another job.
	Again *Again

	// joins: while a job of this name is running, a second request gets that job. auditing: the job does not count
	// towards maxJobs.
	joins, auditing bool
	ended           chan struct{}
}

// Again is the form that continues with letters: it decides the counted letters, or the rest of them.
type Again struct {
	Action access.Action
	Path   string
	Order  ops.Letters
}

// Running reports whether the job is still running, for a template.
func (j *Job) Running() bool { return j.Took == 0 }

// jobs are the jobs of this process, the newest first.
type jobs struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	list  []*Job
	count int
	audit *audit.Report // of the last audit that ended
}

var errManyJobs = errors.New("this console already runs four jobs: wait until one of them ends")

func newJobs() *jobs {
	ctx, cancel := context.WithCancel(context.Background())
	return &jobs{ctx: ctx, cancel: cancel}
}

// start begins a job, or returns the running job that want joins.
func (s *jobs) start(want Job, do func(ctx context.Context, j *Job) error) (*Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running := 0
	for _, j := range s.list {
		switch {
		case j.Running() && want.joins && j.What == want.What:
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
	s.wg.Go(func() { s.run(j, do) })
	return j, nil
}

// run does the work on a copy, so that pages read a consistent job.
func (s *jobs) run(j *Job, do func(context.Context, *Job) error) {
	work := *j
	err := do(s.ctx, &work)
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

// wait waits a little for the end of a job, and returns its state then.
func (s *jobs) wait(ctx context.Context, j *Job) Job {
	wait := time.NewTimer(patience)
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

// all returns the present state of the jobs.
func (s *jobs) all() []Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Job, len(s.list))
	for i, j := range s.list {
		list[i] = *j
	}
	return list
}

// find returns the present state of a job; nil for none. A caller with a scope sees their own jobs, and those about
// campaigns in the scope.
func (s *jobs) find(id string, who *access.Caller) *Job {
	for _, j := range s.all() {
		if strconv.Itoa(j.ID) == id && (!who.Scoped() || j.By == who.Key || j.Campaign != "" && who.Sees(j.Campaign)) {
			return &j
		}
	}
	return nil
}

// lastAudit returns the last audit that this process ran; nil for none.
func (s *jobs) lastAudit() *audit.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.audit
}

// close ends every job and waits for it.
func (s *jobs) close() {
	s.mu.Lock() // no job begins after wg.Wait
	s.cancel()
	s.mu.Unlock()
	s.wg.Wait()
}
