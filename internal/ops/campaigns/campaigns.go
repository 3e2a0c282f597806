package campaigns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// create inserts the campaign into the ledger. If the campaign exists with the same specification, create returns it.
func (a Campaigns) create(ctx context.Context, c hongbao.Campaign) (stored ledger.StoredCampaign, isNew bool, err error) {
	for range 2 {
		has, found, err := a.Creatable(ctx, c)
		if found || err != nil {
			return has, false, err
		}
		seed := campaign.NewSeed()
		stored, err = a.app.Ledger().CreateCampaign(ctx, ledger.Campaign{
			Spec: c, Canonical: campaign.Canonical(c), Seed: seed, Hash: campaign.Commit(c, seed),
		})
		if !errors.Is(err, ledger.ErrCampaignExists) { // another process has created it meanwhile: read it
			return stored, err == nil, err
		}
	}
	return stored, false, hongbao.Errorf(hongbao.ClassTransient,
		"create campaign %s: another process is creating it; try again", c.ID)
}

// Creatable returns the campaign if it is already in the ledger. Otherwise it returns an error if the campaign can't be
// created now.
func (a Campaigns) Creatable(ctx context.Context, c hongbao.Campaign) (has ledger.StoredCampaign, found bool, err error) {
	if err := access.MaySpend(ctx, c.Sponsor, c.Total); err != nil {
		return has, false, fmt.Errorf("create campaign %s: %w", c.ID, err)
	}
	has, found, err = a.app.Ledger().Campaign(ctx, c.ID)
	switch {
	case err != nil:
		return has, false, err
	case found && string(has.Canonical) != string(campaign.Canonical(c)):
		return has, false, hongbao.Errorf(hongbao.ClassConflict,
			"campaign %s is in the ledger with another specification; nothing was changed (%w). "+
				"`hongbao campaign show %s` prints it; use another id for the new campaign", c.ID, ledger.ErrCampaignExists, c.ID)
	case found:
		return has, true, nil
	}
	now := time.Now()
	repeats, err := a.repeats(ctx, &c)
	if repeats {
		now = time.Time{} // what Redis has may be repeated at any time
	}
	if err == nil {
		err = campaign.Validate(c, now)
	}
	if err != nil {
		return has, false, err
	}
	return has, false, a.checkShards(&c)
}

// repeats reports whether Redis has the campaign, which an older copy of the ledger lacks, and a new draw gives its
// packets the same amounts. It refuses any other campaign with an id that Redis has.
func (a Campaigns) repeats(ctx context.Context, c *hongbao.Campaign) (bool, error) {
	if hongbao.CheckCampaignID(c.ID) != nil {
		return false, nil //nolint:nilerr // Validate refuses the id
	}
	spec, found, err := a.app.Store().Campaign(c.ID).Spec(ctx)
	switch {
	case err != nil || !found:
		return false, err
	case spec == string(campaign.Canonical(*c)) && sameAmounts(c.Split.Mode, c.Packets, c.Total):
		return true, nil
	}
	return false, hongbao.Errorf(hongbao.ClassConflict, "%w: Redis has campaign %s, and the ledger does not: the ledger lost "+
		"it. Only a campaign with the same specification, whose packets all have the same amount, can be created again. "+
		"Restore a newer copy of the ledger; if there is none, see docs/disaster.md, \"What the procedure cannot bring "+
		"back\"", ledger.ErrCampaignExists, c.ID)
}

// sameAmounts reports whether every draw gives all packets the same amount.
func sameAmounts(mode hongbao.SplitMode, packets int64, total hongbao.Amount) bool {
	return mode == hongbao.SplitEven && packets > 0 && total%hongbao.Amount(packets) == 0
}

// checkShards refuses a campaign that wants more shards than the deployment has.
func (a Campaigns) checkShards(c *hongbao.Campaign) error {
	has := a.app.Config.Deployment.Shards
	if c.Places() <= has {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "%w", &campaign.SpecError{Problems: []campaign.Problem{{
		Path: "shards", Code: "shards_above_deployment",
		Message: fmt.Sprintf("%d; the deployment has %d (deployment.shards); use at most that many", c.Places(), has),
	}}})
}

// Load recomputes the plan of a campaign in the ledger, checks its hash, and loads the campaign into Redis.
func (a Campaigns) Load(ctx context.Context, id string) (c hongbao.Campaign, err error) {
	err = a.app.Recorded(ctx, app.About(ctx, access.LoadCampaign, id), func(ctx context.Context, _ *access.Entry) (err error) {
		c, err = a.load(ctx, id)
		return err
	})
	return c, err
}

func (a Campaigns) load(ctx context.Context, id string) (hongbao.Campaign, error) {
	c, err := a.app.Campaign(ctx, id)
	if err != nil {
		return c.Spec, err
	}
	if c.State == model.MoneyRefunded { // a load would open the campaign again, and its grants would never be paid
		return c.Spec, hongbao.Errorf(hongbao.ClassPermanent,
			"campaign %s was refunded or cancelled: it can't be loaded; create one with another id", id)
	}
	if err := campaign.Verify(c.Spec, c.Seed, c.Hash); err != nil {
		return c.Spec, err
	}
	plan, err := campaign.NewPlan(c.Spec, c.Seed)
	if err != nil {
		return c.Spec, err
	}
	if err := a.app.CheckRedis(ctx, c.Spec.Durability); err != nil {
		return c.Spec, err
	}
	loader, err := a.app.Loader()
	if err != nil {
		return c.Spec, err
	}
	if err := a.notLost(ctx, id); err != nil {
		return c.Spec, err
	}
	// Also if the load has begun: BeginLoad then waits until the ledger's standby has the campaign.
	if err := a.app.Ledger().BeginLoad(ctx, id); err != nil {
		return c.Spec, err
	}
	loading := a.app.LongCall(ctx, "loading "+id, c.Spec.Packets)
	defer loading.End()
	err = loading.Stopped(ctx, loader.Load(ctx, c.Spec, plan, c.Hash, loading.Set),
		"no one can win before all packets are loaded. Run the same command again: it continues")
	if err == nil {
		err = a.DealTopUps(ctx, id) // top-ups that were ordered before the load
	}
	return c.Spec, err
}

// notLost returns an error if Redis has lost the campaign. Loading it again would deal its packets to other users, who
// would never be paid.
func (a Campaigns) notLost(ctx context.Context, id string) error {
	s, found, err := a.app.Store().Campaign(id).Status(ctx)
	if err != nil || found && s.State != store.StateLoading {
		return err
	}
	held, err := a.app.Ledger().Position(ctx, id)
	if err != nil || held.Granted == 0 {
		return err
	}
	return hongbao.Errorf(hongbao.ClassConflict, "campaign %s: the ledger has paid %d of its packets, and Redis has lost "+
		"the campaign; a load would deal these packets again, so nothing was loaded. Restore Redis from its append-only "+
		"file or a replica (docs/operations.md); if that is impossible, run `hongbao campaign refund-lost %s`, which ends "+
		"the campaign from the ledger", id, held.Granted, id)
}

// createCodes stores the codes of a campaign that is in the ledger: the codes in read, or codes drawn from the
// campaign's pattern. If an earlier call was killed, createCodes continues its work.
func (a Campaigns) createCodes(ctx context.Context, c *hongbao.Campaign, read []string) error {
	if c.Codes == nil {
		return nil
	}
	draw := func(after int64, n int) ([]string, error) { return read[after : after+int64(n)], nil }
	if c.Codes.Pattern != "" {
		draw = func(_ int64, n int) ([]string, error) { return campaign.DrawCodes(c.Codes.Pattern, n), nil }
	} else if err := a.sameCodes(ctx, c.ID, read); err != nil {
		return err
	}
	storing := a.app.LongCall(ctx, "storing the codes of "+c.ID, c.Packets)
	defer storing.End()
	err := storing.Stopped(ctx, a.app.Ledger().AddCodes(ctx, c.ID, draw, storing.Set), "run the same command again: it continues")
	if err != nil || read == nil {
		return err
	}
	return a.sameCodes(ctx, c.ID, read) // another process may have imported other codes meanwhile
}

// sameCodes returns a Conflict unless the ledger's codes equal those in read.
func (a Campaigns) sameCodes(ctx context.Context, id string, read []string) error {
	const page = 10_000
	for after := int64(0); ; {
		has, err := a.app.Ledger().Codes(ctx, id, after, page)
		if err != nil {
			return err
		}
		if !slices.Equal(has, read[after:after+int64(len(has))]) {
			return hongbao.Errorf(hongbao.ClassConflict,
				"campaign %s is in the ledger with other codes than the file's, after packet %d; nothing was changed. "+
					"Pass the file that the campaign was created with, or use another id", id, after)
		}
		if after += int64(len(has)); len(has) < page {
			return nil
		}
	}
}

// Shown is the state of a campaign in the ledger and in Redis. It has no seed, because the seed is secret until the
// reveal.
type Shown struct {
	Spec hongbao.Campaign `json:"spec" doc:"The specification with which the campaign was created. It does not include top-ups."`
	Hash string           `json:"plan_hash" doc:"Hash that commits to the specification and its secret seed. Publish it before the start."`
	// Canonical is the specification as Hash covers it.
	Canonical string           `json:"canonical" doc:"The specification as text. The hash covers exactly these bytes, and the seed. Publish it with the hash: the reveal has the same text."`
	Ledger    CampaignInLedger `json:"ledger" doc:"State of the campaign in the ledger."`
	// TopUps are the generations after the first, each with the hash that commits to its draw.
	TopUps []model.TopUp `json:"top_ups,omitempty" doc:"The campaign's top-ups, in their order. Absent if there are none."`
	Redis  *store.Status `json:"redis" doc:"State of the campaign in Redis. Null if Redis does not have the campaign: it is not loaded yet, or lost."`
	// Answers are in Redis, too, so they leave it with the campaign.
	Answers *model.Answers `json:"answers" doc:"How all servers have answered the campaign's grabs. It counts requests to 'hongbao serve', not people. Null if Redis does not have the campaign."`
}

// CampaignInLedger is the state of a campaign in the ledger.
type CampaignInLedger struct {
	State    model.MoneyState `json:"state" enum:"funded,refunded" doc:"'refunded' once the sponsor got the remaining money back, else 'funded'."`
	Packets  int64            `json:"packets" doc:"Number of packets, including those of top-ups."`
	Funded   hongbao.Amount   `json:"funded" doc:"Amount that the sponsor has paid in, including top-ups, in minor units."`
	Granted  hongbao.Amount   `json:"granted" doc:"Amount that the ledger has booked for users, in minor units."`
	Refunded hongbao.Amount   `json:"refunded" doc:"Amount that went back to the sponsor, in minor units."`
	// Codes is how many packets have a code. It equals Packets once the creation is complete.
	Codes int64 `json:"codes,omitempty" doc:"Number of packets with a code. Once the creation is complete, every packet has one. Absent if the campaign has no codes."`
}

// Created is a campaign that is in the ledger.
type Created struct {
	Campaign string           `json:"campaign" doc:"The campaign's id."`
	Created  bool             `json:"created" doc:"True if this request created the campaign. False if the campaign existed before."`
	State    model.MoneyState `json:"state" enum:"funded,refunded" doc:"State of the campaign in the ledger."`
	Hash     string           `json:"plan_hash" doc:"Hash that commits to the specification and its secret seed. Publish it before the start."`
	Next     string           `json:"next" doc:"What a person should do next, as a command."`
}

// Create funds a campaign, draws its seed, and stores its codes: the given codes, or codes drawn from its pattern. A
// repeat with the same campaign changes nothing.
func (a Campaigns) Create(ctx context.Context, c hongbao.Campaign, codes []string) (*Created, error) {
	out, err := a.CreateFunded(ctx, c)
	if err == nil {
		err = a.StoreCodes(ctx, c, codes)
	}
	if err != nil {
		return nil, err
	}
	a.app.WarnOfDurability(ctx, c.Durability)
	return out, nil
}

// CreateFunded is the first step of Create, one transaction of the ledger.
func (a Campaigns) CreateFunded(ctx context.Context, c hongbao.Campaign) (*Created, error) {
	var stored ledger.StoredCampaign
	var isNew bool
	err := a.app.InLedger(ctx, app.About(ctx, access.CreateCampaign, c.ID), func(ctx context.Context, e *access.Entry) (err error) {
		stored, isNew, err = a.create(ctx, c)
		e.Details = map[string]any{"funded": stored.Funded, "currency": c.Currency, "packets": c.Packets, "created": isNew}
		if stored.Hash != "" { // empty if the campaign was not created
			e.Details["plan_hash"] = stored.Hash
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &Created{c.ID, isNew, stored.State, stored.Hash, "hongbao campaign load " + c.ID}
	if stored.State == model.MoneyRefunded {
		out.Next = "the campaign was refunded: create another one with a new id"
	}
	return out, nil
}

// StoreCodes is the second step of Create. If an earlier call was killed, StoreCodes continues its work.
func (a Campaigns) StoreCodes(ctx context.Context, c hongbao.Campaign, codes []string) error {
	return a.createCodes(ctx, &c, codes)
}

// Pause pauses a campaign, whose grabs are then answered paused, until it is resumed. Pause works while the ledger is
// down: a worker records the pause in the ledger later. The reason may be empty. changed is false if the campaign was
// paused already.
func (a Campaigns) Pause(ctx context.Context, id string, by stream.Decision) (changed bool, err error) {
	return a.turn(ctx, access.PauseCampaign, id, by, store.Campaign.Pause)
}

// Resume resumes a paused campaign. The reason may be empty. changed is false if the campaign was not paused.
func (a Campaigns) Resume(ctx context.Context, id string, by stream.Decision) (changed bool, err error) {
	return a.turn(ctx, access.ResumeCampaign, id, by, store.Campaign.Resume)
}

func (a Campaigns) turn(ctx context.Context, action access.Action, id string, by stream.Decision,
	do func(c store.Campaign, ctx context.Context, by stream.Decision) (bool, error)) (changed bool, err error) {
	err = a.app.Recorded(ctx, app.About(ctx, action, id), func(ctx context.Context, e *access.Entry) (err error) {
		if by.Why != "" {
			e.Details = map[string]any{"by": by.By, "why": by.Why}
		}
		changed, err = do(a.app.Store().Campaign(id), ctx, by)
		return err
	})
	return changed, err
}

// InRedis returns the state of a campaign in Redis, which needs no ledger. It returns nil if Redis does not have the
// campaign, or can't be read.
func (a Campaigns) InRedis(ctx context.Context, id string) *store.Status {
	status, found, err := a.app.Store().Campaign(id).Status(ctx)
	if err != nil || !found {
		return nil
	}
	return &status
}

// Show returns the state of a campaign in the ledger and in Redis.
func (a Campaigns) Show(ctx context.Context, id string) (out Shown, err error) {
	c, added, err := a.app.CampaignWithTopUps(ctx, id)
	if err != nil {
		return out, err
	}
	out.Spec, out.Hash, out.Canonical, out.Ledger.Packets = c.Spec, c.Hash, string(c.Canonical), c.Packets
	out.TopUps = topUpsOf(&c, added)
	out.Ledger.State, out.Ledger.Funded, out.Ledger.Granted, out.Ledger.Refunded = c.State, c.Funded, c.Granted, c.Refunded
	if c.Spec.Codes != nil {
		if out.Ledger.Codes, err = a.app.Ledger().CodesStored(ctx, id); err != nil {
			return out, err
		}
	}
	if status, ok, err := a.app.Store().Campaign(id).Status(ctx); err != nil {
		return out, err
	} else if ok {
		out.Redis = &status
		answers, err := a.Answers(ctx, id)
		if err != nil {
			return out, err
		}
		out.Answers = &answers
	}
	return out, nil
}

// Answers returns how all servers have answered the campaign's grabs. There are none if Redis does not have the
// campaign.
func (a Campaigns) Answers(ctx context.Context, id string) (model.Answers, error) {
	return a.app.Store().Campaign(id).Answers(ctx)
}

// Reveal makes the seed of a refunded campaign public.
func (a Campaigns) Reveal(ctx context.Context, id string) (*campaign.Disclosure, error) {
	var c ledger.StoredCampaign
	err := a.app.InLedger(ctx, app.About(ctx, access.RevealCampaign, id), func(ctx context.Context, _ *access.Entry) (err error) {
		c, err = a.app.Ledger().Reveal(ctx, id)
		return err
	})
	switch {
	case errors.Is(err, ledger.ErrNoCampaign):
		return nil, a.app.NoCampaign(ctx, id)
	case errors.Is(err, ledger.ErrNotRefunded):
		return nil, fmt.Errorf("%w: `hongbao campaign close %s`, then `hongbao campaign refund %s`", err, id, id)
	case err != nil:
		return nil, err
	}
	_, _, added, err := a.app.Ledger().Plan(ctx, id)
	if err != nil {
		return nil, err
	}
	return &campaign.Disclosure{
		Format: campaign.DisclosureFormat, Campaign: id, Canonical: string(c.Canonical), Hash: c.Hash,
		Seed:     campaign.Seed(c.Seed).Hex(),
		Revealed: c.Revealed, TopUps: disclosed(added),
	}, nil
}
