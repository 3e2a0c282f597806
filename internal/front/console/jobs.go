package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

// jobWait is how long a request waits for the end of a job. After that the page shows the progress.
const jobWait = 3 * time.Second

// startJob starts a job and waits for a short time. Then it redirects to the page of the job, which shows the
// result or the progress.
func (c *Console) startJob(w http.ResponseWriter, r *http.Request, who *access.Caller, order *jobs.Order) {
	if err := c.beginJob(w, r, who, order); err != nil {
		c.fail(w, r, statusOf(err), model.Because(err, "The job did not start."))
	}
}

// beginJob is startJob, but if the job can't be started, it writes no answer and returns the error.
func (c *Console) beginJob(w http.ResponseWriter, r *http.Request, who *access.Caller, order *jobs.Order) error {
	run, err := c.jobs.Start(r.Context(), order.For(who, who.Actor("")))
	if err != nil {
		return err
	}
	_, _ = run.Wait(r.Context(), jobWait) // the page shows the report, or the error
	to := "/jobs/" + run.Job().ID
	if id := r.PostFormValue("from"); hongbao.CheckCampaignID(id) == nil {
		to += "?from=" + id
	}
	http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // id was checked
	return nil
}

// Work is the data of the page of jobs: the jobs of all servers, and all replays.
type Work struct {
	Jobs []jobs.Job
	// Unread is set if the ledger can't be read. Then Jobs has the jobs of this server.
	Unread  bool
	Replays []deliveries.ReplayState
}

func (c *Console) work(ctx context.Context) (any, error) {
	list, unread := c.jobs.List(ctx)
	replays, err := c.source.Replays(ctx)
	return Work{list, unread != nil, replays}, err
}

// jobView returns the page of a job. It returns false if there is none for the caller. While the ledger can't be read,
// only a caller without a scope has a page that waits for it.
func (c *Console) jobView(ctx context.Context, id string, who *access.Caller) (view, bool) {
	j, err := c.jobs.Find(ctx, id, who)
	if j == nil && (err == nil || who.Scoped()) {
		return view{}, false
	}
	return c.viewOfJob(id, j), true
}

// viewOfJob returns the page of a job that the caller may see. j is nil if it could not be read.
func (c *Console) viewOfJob(id string, j *jobs.Job) view {
	v := view{title: model.Say("Job"), name: "job", live: "job-live", filter: everything}
	if j != nil {
		v.title = j.What
	}
	v.load = func(ctx context.Context) (any, error) {
		now, err := c.jobs.Find(ctx, id, &access.Caller{}) // the scope was checked before
		if err == nil && now == nil {
			err = fmt.Errorf("job %.40s: %w", id, model.ErrNotFound)
		}
		return now, err
	}
	return v
}

// job shows a job of any server.
func (c *Console) job(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	id := r.PathValue("id")
	switch j, err := c.jobs.Find(r.Context(), id, who); {
	case err != nil:
		c.failed(w, r, err)
	case j == nil:
		c.fail(w, r, http.StatusNotFound, noJob)
	default:
		v := c.viewOfJob(id, j)
		c.showView(w, r, who, &v)
	}
}

var noJob = model.Say("There is no such job, or your key is not valid for it. The newest 200 that ended are kept.")

// stopJob asks a job to stop, on whichever server it runs, and shows its page.
func (c *Console) stopJob(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	j, err := c.jobs.Find(r.Context(), r.PathValue("id"), who)
	switch {
	case err != nil:
		c.failed(w, r, err)
		return
	case j == nil:
		c.fail(w, r, http.StatusNotFound, noJob)
		return
	case j.Stopper == "":
		c.fail(w, r, http.StatusConflict, model.Say("This job can't be stopped."))
		return
	}
	stopper := access.Action(j.Stopper)
	if err := who.May(stopper); err != nil {
		c.actions.Denied(r.Context(), stopper, j.Campaign, err)
		c.fail(w, r, http.StatusForbidden, c.explain(err))
		return
	}
	if err := c.jobs.Stop(r.Context(), j.ID, who.Key, jobWait); err != nil && !errors.Is(err, jobs.ErrRuns) {
		c.failed(w, r, err)
		return
	}
	http.Redirect(w, r, "/jobs/"+j.ID, http.StatusSeeOther) //nolint:gosec // the id was found
}

// reportText returns the report of a replay as a command prints it.
func reportText(r *model.ReplayReport) string {
	var b strings.Builder
	_ = r.Write(&b) // writing to a strings.Builder never fails
	return b.String()
}

// rolesFor names the roles whose keys may take an action.
func rolesFor(action string) string { return strings.Join(access.RolesOf(access.Action(action)), ", ") }
