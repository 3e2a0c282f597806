package jobs

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/model"
)

// tend stores at each heartbeat how far the jobs of this process are, until none is left to store.
func (r *Registry) tend() {
	for retry.Pause(r.ctx, heartbeat) {
		r.keep(nil)
		r.mu.Lock()
		r.tending = len(r.unstored()) > 0
		more := r.tending
		r.mu.Unlock()
		if !more {
			return
		}
	}
}

// unstored returns the jobs of this process whose end the ledger does not have. The caller holds mu.
func (r *Registry) unstored() (list []*Run) {
	for _, x := range r.runs {
		if !x.stored {
			list = append(list, x)
		}
	}
	return list
}

// keep stores how far the jobs of this process are and how they have ended, and stops those that a person has stopped
// elsewhere. After a failure the next heartbeat tries again. A job that has ended needs no keep if another one has stored
// its end.
func (r *Registry) keep(ended *Run) {
	r.keeping.Lock()
	defer r.keeping.Unlock()
	r.mu.Lock()
	if ended != nil && ended.stored {
		r.mu.Unlock()
		return
	}
	list := r.unstored()
	now := make([]model.Job, len(list))
	for i, x := range list {
		now[i] = x.job
	}
	r.mu.Unlock()
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), ledgerWait)
	defer cancel()
	rows, err := r.rows.KeepJobs(ctx, now)
	if err != nil {
		r.log.Info("the state of the jobs is not in the ledger; it is stored again", zap.Error(err))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, x := range list {
		x.job.Seen = time.Now().UTC()
		switch {
		case !now[i].Running():
			x.stored = true
		case rows[i].Lost:
			x.stop(errTaken)
		case rows[i].StopBy != "":
			x.stopFor(rows[i].StopBy)
		}
	}
}

// keepEnded makes sure that the ledger has the end of each job of this process with a name, before another one begins.
func (r *Registry) keepEnded(name string) {
	r.mu.Lock()
	i := slices.IndexFunc(r.runs, func(x *Run) bool { return x.job.Name == name && !x.job.Running() && !x.stored })
	if i < 0 {
		r.mu.Unlock()
		return
	}
	x := r.runs[i]
	r.mu.Unlock()
	r.keep(x)
}

// stopFor stops a job of this process for an API key. The caller holds mu.
func (x *Run) stopFor(by string) {
	if x.job.Running() && x.job.StopBy == "" {
		x.job.StopBy = by
		x.stop(errStopped)
	}
}
