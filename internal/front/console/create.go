package console

import (
	"errors"
	"net/http"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

// newCampaign is the data of the form for a new campaign.
type newCampaign struct {
	Text  string
	Wrong model.Sentence
	// Checked is the campaign after a check without problems; else nil. Exists reports whether the ledger already has
	// the campaign.
	Checked *hongbao.Campaign
	Exists  bool
}

// create shows the form, checks the specification, or creates the campaign and redirects to its page.
func (c *Console) create(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	unread := r.ParseForm()
	v := newCampaign{Text: r.PostForm.Get("spec")}
	answer := page{Title: model.Say("New campaign"), Caller: who, View: &v}
	if reads(r) {
		c.show(w, r, http.StatusOK, "create", answer)
		return
	}
	in, err := readSpec(v.Text, unread)
	spec := in.Spec
	if err == nil {
		if err = who.Check(access.CreateCampaign, spec.ID); err != nil {
			c.actions.Denied(r.Context(), access.CreateCampaign, spec.ID, err)
		}
	}
	check, isNew := r.PostForm.Get("check") != "", false
	switch {
	case err != nil:
	case check:
		v.Exists, err = c.actions.CheckCampaign(r.Context(), spec)
	default:
		var created *campaigns.Created
		if created, err = c.operations(who).FundCampaign(r.Context(), in); err == nil {
			isNew = created.Created
		}
	}
	switch {
	case err != nil:
		v.Wrong = c.explainSpec(err)
		c.show(w, r, createStatus(err), "create", answer)
	case check:
		v.Checked = &spec
		c.show(w, r, http.StatusOK, "create", answer)
	case spec.Codes != nil:
		if err = c.storeCodes(w, r, who, &in); err != nil {
			v.Wrong = model.Sentence{Text: "The ledger has the campaign and its money, but not its codes. Press Create again.",
				Original: c.explain(err).Original}
			c.show(w, r, http.StatusServiceUnavailable, "create", answer)
		}
	case isNew:
		http.Redirect(w, r, "/campaigns/"+spec.ID+"?done=created", http.StatusSeeOther)
	default:
		http.Redirect(w, r, "/campaigns/"+spec.ID+"?done=there", http.StatusSeeOther)
	}
}

// storeCodes starts a job that stores the codes of a coupon campaign. It also continues where an earlier job
// stopped.
func (c *Console) storeCodes(w http.ResponseWriter, r *http.Request, who *access.Caller, in *ops.CampaignCreate) error {
	return c.beginJob(w, r, who, jobs.Codes(c.operations(who).StoreCodes, in))
}

// explainSpec returns all problems of a specification, or the reason why the campaign can't be created.
func (c *Console) explainSpec(err error) model.Sentence {
	var spec *campaign.SpecError
	switch {
	case errors.As(err, &spec):
		return model.Because(spec, "The specification has mistakes.")
	case errors.Is(err, access.ErrNotInScope):
		return model.Say("Your key is not valid for a campaign with this id.")
	}
	return c.explain(err)
}

// readSpec parses a specification with the same rules as the API.
func readSpec(text string, unread error) (in ops.CampaignCreate, err error) {
	if unread != nil {
		return in, hongbao.Errorf(hongbao.ClassPermanent,
			"the form can't be read, or has more than %d bytes: use `hongbao campaign create` (%w)", maxForm, unread)
	}
	if in.Spec, err = campaign.Read(strings.NewReader(text)); err == nil {
		err = in.Check()
	}
	return in, err
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
