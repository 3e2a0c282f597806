package console

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

// newCampaign is the data of the page for a new campaign. The page has two tabs for one specification: a form and its
// text. It sends both; YAML says which one counts.
type newCampaign struct {
	YAML bool
	Form ops.CampaignForm
	Text string
	// Wrong is the mistake of the specification as a whole. Errors are the mistakes in fields of the form.
	Wrong  model.Sentence
	Errors []fieldError
	// Changed reports whether the specification differs from the one that was checked.
	Changed bool
	// Checked is a specification without problems; else nil.
	Checked *checkedCampaign
}

// checkedCampaign is what a person reads before the creation.
type checkedCampaign struct {
	hongbao.Campaign
	campaigns.Check
	Example *ops.Example
	// Digest is the hash of the specification. The creation requires it, so only what was checked is created.
	Digest string
	// Funds reports whether the page shows the sum that the sponsor has funded.
	Funds bool
	Begun bool // the window is open already
}

// Start is the begin of the window, with its date.
func (c *checkedCampaign) Start() when { return when{At: c.From, zone: c.TimeZone} }

// End is the end of the window, with its date.
func (c *checkedCampaign) End() when { return when{At: c.To, zone: c.TimeZone} }

// After is what the sponsor has funded after the creation.
func (c *checkedCampaign) After() hongbao.Amount { return c.Funded + c.Total }

// Spread has the amounts of the example.
func (c *checkedCampaign) Spread() []model.Bin {
	bins := make([]model.Bin, len(c.Example.Bins))
	for i, b := range c.Example.Bins {
		bins[i] = model.Bin{Low: b.Low, High: b.High, Granted: int64(b.Packets)}
	}
	return bins
}

// create shows the page, works on the form, checks the specification, or creates the campaign and redirects to its page.
func (c *Console) create(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	unread := r.ParseForm()
	var v newCampaign
	answer := page{Title: model.Say("New campaign"), Caller: who, View: &v, Own: true, Path: "/"}
	if reads(r) {
		v.Form = c.tongueOf(r).newForm()
		c.show(w, r, http.StatusOK, "create", answer)
		return
	}
	v.read(r)
	if unread != nil {
		v.Wrong = c.explain(hongbao.Errorf(hongbao.ClassPermanent,
			"the form can't be read, or has more than %d bytes: use `hongbao campaign create` (%w)", maxForm, unread))
		c.show(w, r, http.StatusConflict, "create", answer)
		return
	}
	if v.edit(r.PostForm) {
		c.show(w, r, http.StatusOK, "create", answer)
		return
	}
	in, err := v.input()
	if err == nil {
		err = c.check(r, who, &v, &in)
	}
	digest := r.PostForm.Get("create")
	switch {
	case err != nil:
		c.refuseSpec(&v, err)
		c.show(w, r, createStatus(err), "create", answer)
	case digest == v.Checked.Digest:
		c.createChecked(w, r, who, &in, answer)
	default:
		v.Changed = digest != ""
		c.show(w, r, http.StatusOK, "create", answer)
	}
}

// check fills in what a person reads before the creation. It refuses a campaign that can't be created now.
func (c *Console) check(r *http.Request, who *access.Caller, v *newCampaign, in *ops.CampaignCreate) error {
	if err := who.Check(access.CreateCampaign, in.Spec.ID); err != nil {
		c.actions.Denied(r.Context(), access.CreateCampaign, in.Spec.ID, err)
		return err
	}
	known, err := c.actions.CheckCampaign(r.Context(), in.Spec)
	if err != nil {
		return err
	}
	example, err := in.Example()
	if err != nil {
		return err
	}
	digest := sha256.Sum256(campaign.Canonical(in.Spec))
	v.Checked = &checkedCampaign{Campaign: in.Spec, Check: known, Example: example, Digest: hex.EncodeToString(digest[:]),
		Funds: in.Spec.Total > 0 && !who.Scoped(), Begun: in.Spec.From.Before(time.Now())} // a scope hides other campaigns' sums
	return nil
}

// createChecked creates a campaign that was checked, and shows its page or the job that stores its codes.
func (c *Console) createChecked(w http.ResponseWriter, r *http.Request, who *access.Caller, in *ops.CampaignCreate, answer page) {
	v := answer.View.(*newCampaign) //nolint:forcetypeassert // the caller has put it there
	created, err := c.operations(who).FundCampaign(r.Context(), *in)
	switch {
	case err != nil:
		v.Checked = nil
		c.refuseSpec(v, err)
		c.show(w, r, createStatus(err), "create", answer)
	case in.Spec.Codes != nil:
		if err = c.storeCodes(w, r, who, in); err != nil {
			v.Wrong = model.Sentence{Text: "The ledger has the campaign and its money, but not its codes. Press Create again.",
				Original: c.explain(err).Original}
			c.show(w, r, http.StatusServiceUnavailable, "create", answer)
		}
	case created.Created:
		http.Redirect(w, r, "/campaigns/"+in.Spec.ID+"?done=created", http.StatusSeeOther)
	default:
		http.Redirect(w, r, "/campaigns/"+in.Spec.ID+"?done=there", http.StatusSeeOther)
	}
}

// storeCodes starts a job that stores the codes of a coupon campaign. It also continues where an earlier job
// stopped.
func (c *Console) storeCodes(w http.ResponseWriter, r *http.Request, who *access.Caller, in *ops.CampaignCreate) error {
	return c.beginJob(w, r, who, jobs.Codes(c.operations(who).StoreCodes, in))
}

// refuseSpec shows all problems of a specification, or the reason why the campaign can't be created.
func (c *Console) refuseSpec(v *newCampaign, err error) {
	var spec *campaign.SpecError
	switch {
	case errors.As(err, &spec) && !v.YAML:
		v.Errors = fieldErrors(&v.Form, spec)
	case errors.As(err, &spec):
		v.Wrong = model.Because(spec, "The specification has mistakes.")
	case errors.Is(err, access.ErrNotInScope):
		v.Wrong = model.Say("Your key is not valid for a campaign with this id.")
	case hongbao.ClassOf(err) == hongbao.ClassConflict && !v.YAML:
		v.Errors = []fieldError{{Field: "id", Say: model.Say("Another campaign has this id: its specification differs. No id can be used again.")}}
		v.Wrong = c.explain(err)
	default:
		v.Wrong = c.explain(err)
	}
}

func createStatus(err error) int {
	var spec *campaign.SpecError
	switch {
	case errors.As(err, &spec), ops.IsInput(err):
		return http.StatusBadRequest
	case errors.Is(err, access.ErrNotInScope), errors.Is(err, access.ErrMayNotSpend):
		return http.StatusForbidden
	}
	return statusOf(err)
}

// load starts a job that loads a campaign. It also continues where an earlier load stopped. If such a job is
// running, it shows that job.
func (c *Console) load(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	id, ok := c.campaignOf(w, r, who, access.LoadCampaign)
	if !ok {
		return
	}
	c.startJob(w, r, who, jobs.Load(c.operations(who), id))
}
