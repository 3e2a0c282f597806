package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

// fromConsole is the reason in the journal for changes whose form has no field for a reason, such as a resume.
const fromConsole = "by a button of the console"

// consolePatience is how long a delivery to a sink that is down is retried while the user waits for the page.
const consolePatience = 10 * time.Second

// changeRoutes adds the routes that change something.
func (c *Console) changeRoutes(mux *http.ServeMux) {
	mux.Handle("POST /create", c.allow(access.CreateCampaign, c.create))
	mux.Handle("POST /campaigns/{id}/load", c.allow(access.LoadCampaign, c.load))
	mux.Handle("GET /campaigns/{id}/pause", c.allow(access.PauseCampaign, c.pausePage))
	mux.Handle("POST /campaigns/{id}/pause", c.allow(access.PauseCampaign, c.turnCampaign(true)))
	mux.Handle("POST /campaigns/{id}/resume", c.allow(access.ResumeCampaign, c.turnCampaign(false)))
	mux.Handle("POST /campaigns/{id}/top-ups", c.allow(access.TopUpCampaign, c.topUp))
	c.endRoutes(mux)
	mux.Handle("GET /sinks/{sink}/pause", c.allow(access.PauseSink, c.pausePage))
	mux.Handle("POST /sinks/{sink}/pause", c.allow(access.PauseSink, c.turnSink(true)))
	mux.Handle("POST /sinks/{sink}/resume", c.allow(access.ResumeSink, c.turnSink(false)))
	mux.Handle("GET /letters/requeue", c.allow(access.RequeueLetters, c.confirmLetters(access.RequeueLetters)))
	mux.Handle("GET /letters/drop", c.allow(access.DropLetters, c.confirmLetters(access.DropLetters)))
	mux.Handle("POST /letters/requeue", c.allow(access.RequeueLetters, c.workLetters(access.RequeueLetters, model.Say("Requeue of dead letters"), model.Say("Dry run: requeue of dead letters"),
		func(ctx context.Context, o ops.Operations, in ops.Letters) (*model.LetterReport, error) {
			return o.RequeueLetters(ctx, ops.Requeue{Letters: in, Patience: consolePatience})
		})))
	mux.Handle("POST /letters/drop", c.allow(access.DropLetters, c.workLetters(access.DropLetters, model.Say("Drop of dead letters"), model.Say("Dry run: drop of dead letters"),
		func(ctx context.Context, o ops.Operations, in ops.Letters) (*model.LetterReport, error) {
			return o.DropLetters(ctx, in)
		})))
	mux.Handle("POST /quarantine/{id}", c.allow(access.DecideQuarantine, c.decide))
	mux.Handle("POST /replays", c.allow(access.Replay, c.replay))
	mux.Handle("POST /jobs/{id}/stop", c.allow(access.ReadCampaigns, c.stopJob))
	mux.Handle("POST /audits", c.allow(access.RunAudit, c.audit))
}

// stateURL returns the page to show after a campaign or a sink was paused or resumed. The page says which.
func stateURL(to string, pause bool) string {
	if pause {
		return to + "?done=paused"
	}
	return to + "?done=resumed"
}

func turnAction(pause bool) access.Action {
	if pause {
		return access.PauseCampaign
	}
	return access.ResumeCampaign
}

// hidden records that the caller requested data of a campaign outside the key's scope.
func (c *Console) hidden(r *http.Request, a access.Action, campaign string) {
	c.actions.Denied(r.Context(), a, campaign, access.ErrNotInScope)
}

// campaignOf returns the campaign id in the path. If the caller may not see the campaign, it answers the
// request and returns false.
func (c *Console) campaignOf(
	w http.ResponseWriter, r *http.Request, who *access.Caller, a access.Action,
) (string, bool) {
	id := r.PathValue("id")
	err := hongbao.CheckCampaignID(id)
	if err == nil && who.Sees(id) {
		return id, true
	}
	if err == nil {
		c.hidden(r, a, id)
	}
	c.failed(w, r, fmt.Errorf("campaign %.40q: %w", id, model.ErrNotFound))
	return "", false
}

func (c *Console) turnCampaign(pause bool) handler {
	return func(w http.ResponseWriter, r *http.Request, who *access.Caller) {
		id, ok := c.campaignOf(w, r, who, turnAction(pause))
		if !ok {
			return
		}
		why, ok := c.reasonOf(w, r, pause)
		if !ok {
			return
		}
		turn := c.operations(who).ResumeCampaign
		if pause {
			turn = c.operations(who).PauseCampaign
		}
		if _, err := turn(r.Context(), ops.CampaignPause{Campaign: id, Why: why}); err != nil {
			c.failed(w, r, err)
			return
		}
		http.Redirect(w, r, stateURL("/campaigns/"+id, pause), http.StatusSeeOther) //nolint:gosec // id was checked
	}
}

// noReason refuses a pause without a reason.
var noReason = model.Say("Nothing is paused: a pause needs a reason.")

// reasonOf returns the reason of a pause or a resume. The form of a resume has no field for it. reasonOf refuses a pause
// without a reason, and then returns false.
func (c *Console) reasonOf(w http.ResponseWriter, r *http.Request, pause bool) (why string, ok bool) {
	if !pause {
		return fromConsole, true
	}
	if why = strings.TrimSpace(r.PostFormValue("why")); why == "" {
		c.fail(w, r, http.StatusBadRequest, noReason)
	}
	return why, why != ""
}

// pauseForm is a page that asks for a reason before a campaign or a sink is paused.
type pauseForm struct {
	Path, Back   string
	What, Button model.Sentence
}

func (c *Console) pausePage(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	v := pauseForm{Path: r.URL.EscapedPath(), Back: "/sinks",
		What: model.Say("Its grants wait until somebody resumes it. Users can win all the same.")}
	if sink := r.PathValue("sink"); sink != "" {
		v.Button = model.Say("Pause %s", sink)
	} else {
		id, ok := c.campaignOf(w, r, who, access.PauseCampaign)
		if !ok {
			return
		}
		v.Back, v.Button = "/campaigns/"+id, model.Say("Pause %s", id)
		v.What = model.Say("Users get “paused” until somebody resumes. The window does not move. Earlier winners are paid all the same.")
	}
	c.show(w, r, http.StatusOK, "pause", page{Title: v.Button, Caller: who, View: v})
}

// topUp adds packets to a campaign. The form has the total in units of the currency.
func (c *Console) topUp(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	id, ok := c.campaignOf(w, r, who, access.TopUpCampaign)
	if !ok {
		return
	}
	var errs []error
	number := func(name string) int64 {
		n, err := strconv.ParseInt(strings.TrimSpace(r.PostFormValue(name)), 10, 64)
		errs = append(errs, err)
		return n
	}
	in := ops.TopUp{Campaign: id, ID: r.PostFormValue("order"), Tiers: r.PostFormValue("tiers"),
		Why: strings.TrimSpace(r.PostFormValue("why")), Packets: number("packets"),
		Expect: hongbao.Amount(number("expect"))}
	var err error
	if in.Total, err = money.Parse(r.PostFormValue("total"), r.PostFormValue("currency")); err == nil {
		err = in.Check()
	}
	if errors.Join(errs...) != nil {
		err = errors.New("packets is an integer")
	}
	if err != nil {
		c.fail(w, r, http.StatusBadRequest, model.Because(err, "No packets were added."))
		return
	}
	c.startJob(w, r, who, &jobs.Order{Name: "top-up of " + id + ", order " + in.ID, Params: in, What: model.Say("Top-up of %s", id), Campaign: id,
		Do: func(ctx context.Context, r *jobs.Report) error {
			out, err := c.operations(who).TopUpCampaign(ctx, in)
			if out != nil {
				r.Text = out.Text()
			}
			return err
		}})
}

func (c *Console) turnSink(pause bool) handler {
	return func(w http.ResponseWriter, r *http.Request, who *access.Caller) {
		why, ok := c.reasonOf(w, r, pause)
		if !ok {
			return
		}
		turn := c.operations(who).ResumeSink
		if pause {
			turn = c.operations(who).PauseSink
		}
		if _, err := turn(r.Context(), ops.SinkPause{Sink: r.PathValue("sink"), Why: why}); err != nil {
			c.failed(w, r, err)
			return
		}
		http.Redirect(w, r, stateURL("/sinks", pause), http.StatusSeeOther)
	}
}

func (c *Console) replay(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	in := ops.Replay{Name: strings.TrimSpace(r.PostFormValue("name")), To: strings.TrimSpace(r.PostFormValue("to")),
		Campaign: strings.TrimSpace(r.PostFormValue("campaign")), Missing: r.PostFormValue("missing") != "",
		DryRun: r.PostFormValue("dry") != "", Patience: consolePatience}
	if err := in.Check(); err != nil {
		c.fail(w, r, http.StatusBadRequest, model.Because(err, "The replay can't start."))
		return
	}
	if !inScope(who, in.Campaign) {
		c.actions.Denied(r.Context(), access.Replay, in.Campaign, who.Check(access.Replay, in.Campaign))
		c.fail(w, r, http.StatusForbidden, nameOne)
		return
	}
	c.startJob(w, r, who, jobs.Replay(c.operations(who), who, &in))
}

// audit starts an audit of Redis, ledger and topic as a job. If an audit is running, it shows that job.
func (c *Console) audit(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	c.startJob(w, r, who, jobs.Audit(c.operations(who), ops.Audit{}))
}
