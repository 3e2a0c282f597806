package control

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/find"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

func campaignReads() []operation {
	return []operation{
		{
			method: http.MethodGet, path: "/v1/campaigns", id: "list-campaigns", summary: "List campaigns",
			description: "Lists the campaigns of the ledger in the order of their ids. To get the next page, send the value " +
				"of the field `next` as the parameter `after`.",
			action: access.ReadCampaigns, answer: campaigns.CampaignPage{},
			params: []*huma.Param{
				param("after", "query", "The field `next` of the previous page.", web.CampaignID().Schema), limitParam(),
			},
			do: func(ctx context.Context, c *call) (any, error) {
				after, limit := c.fields.campaign("after"), c.fields.limit()
				if err := c.fields.done(); err != nil {
					return nil, err
				}
				page, err := campaigns.Of(c.app).ListCampaigns(ctx, after, limit, c.sees())
				if err == nil {
					campaigns.Of(c.app).AddStatus(ctx, page.Campaigns)
				}
				return page, err
			},
		},
		{
			method: http.MethodGet, path: "/v1/campaigns/{id}", id: "show-campaign", summary: "Show a campaign",
			description: "Returns the specification, the hash of the plan, and the campaign's state in the ledger and in " +
				"Redis. The field `redis` is null if Redis does not have the campaign. The answer never has the seed, or the " +
				"amount of a packet that is not granted yet.",
			action: access.ReadCampaigns, answer: campaigns.Shown{},
			do: plain(func(ctx context.Context, c *call) (any, error) { return c.ops().ShowCampaign(ctx, c.campaign) }),
		},
		{
			method: http.MethodGet, path: "/v1/campaigns/{id}/ending", id: "ending",
			summary:     "Show how far the end of a campaign is",
			description: "Returns what is still to be done for a closed campaign, and the exact amount of its refund.",
			action:      access.ReadCampaigns, answer: campaigns.Ending{},
			codes: []string{"not_closed", "not_loaded", "campaign_lost"},
			do:    plain(func(ctx context.Context, c *call) (any, error) { return c.ops().CampaignEnding(ctx, c.campaign) }),
		},
		{
			method: http.MethodGet, path: "/v1/campaigns/{id}/history", id: "history", summary: "Show the course of a campaign",
			description: "Returns the campaign's counters of the last ten minutes, and what changed or disturbed it: who " +
				"paused it and why, how long it was frozen, when a sink was down. Counters and disturbances are those that this " +
				"server has seen since its start. While the ledger is down, the answer has what this server knows.",
			action: access.ReadCampaigns, answer: model.History{},
			do: plain(func(ctx context.Context, c *call) (any, error) { return c.history(ctx, c.campaign) }),
		},
		{
			method: http.MethodGet, path: "/v1/campaigns/{id}/trail", id: "trail", summary: "Show the trail of a user's grants",
			description: "Shows where the grants of a user, or the grant of a packet, are: receipt, entry in the stream, row " +
				"of the ledger, record in the topic. The field `unread` names the stores that could not be read. The answer has " +
				"no coupon codes.",
			action: access.ReadTrails, answer: find.Trail{},
			params: []*huma.Param{
				userParam("Id of the user. Send either `user` or `packet`."),
				numberParam("packet", "Number of the packet. Send either `user` or `packet`.", 1, float64(hongbao.MaxPackets)),
			},
			codes: []string{"busy"}, do: trail,
		},
	}
}

// plain wraps an operation without parameters and without fields in its body.
func plain(do func(ctx context.Context, c *call) (any, error)) func(ctx context.Context, c *call) (any, error) {
	return func(ctx context.Context, c *call) (any, error) {
		if err := c.fields.done(); err != nil {
			return nil, err
		}
		return do(ctx, c)
	}
}

func trail(ctx context.Context, c *call) (any, error) {
	in := ops.TrailOf{Campaign: c.campaign, User: c.fields.text("user"),
		Packet: c.fields.number("packet", 1, hongbao.MaxPackets)}
	if err := c.fields.done(); err != nil {
		return nil, err
	}
	return c.ops().ShowTrail(ctx, in)
}

// empty is the body of a change that needs no fields.
type empty struct{}

func campaignChanges() []operation {
	return []operation{
		{
			method: http.MethodPost, path: "/v1/campaigns", id: "create-campaign", summary: "Create a campaign",
			description: "Funds a campaign with this specification and draws its secret seed. The field `plan_hash` of the " +
				"answer commits to both. Sending the specification again changes nothing. Coupon codes can only follow a " +
				"pattern; a file of codes needs `hongbao campaign create`. docs/campaigns.md describes the fields.",
			action: access.CreateCampaign, body: hongbao.Campaign{}, answer: campaigns.Created{},
			accepted: campaigns.Created{},
			codes:    []string{"specification_invalid", "specification_impossible", "campaign_exists", "unknown_campaign", "conflict"},
			do:       create, raw: true, inTransaction: true, after: storeCodes,
		},
		{
			method: http.MethodPost, path: "/v1/campaigns/{id}/load", id: "load-campaign", summary: "Load a campaign into Redis",
			description: "Writes the packets to Redis, then opens the campaign. After an answer 202 the load continues in " +
				"this server. If the server stops, the load stops. Sending the request again continues it.",
			action: access.LoadCampaign, body: empty{}, answer: loadAnswer{}, accepted: loadAnswer{},
			codes: []string{"campaign_lost", "conflict"}, do: plain(load),
		},
		topUpOperation(),
		stateChange("pause", "Pause a campaign: grabs get the answer paused until it is resumed", access.PauseCampaign,
			ops.Operations.PauseCampaign),
		stateChange("resume", "Resume a paused campaign", access.ResumeCampaign,
			ops.Operations.ResumeCampaign),
		{
			method: http.MethodPost, path: "/v1/campaigns/{id}/cancel", id: "cancel-campaign",
			summary: "End a campaign that was never loaded",
			description: "The sponsor gets all of the campaign's money back, including the money of top-ups. The campaign " +
				"can't be loaded afterwards. The request is refused once the load has begun. A second cancel returns the same " +
				"answer.",
			action: access.CancelCampaign, body: empty{}, answer: campaigns.Ending{},
			codes: []string{"loading_begun"}, inTransaction: true,
			do: plain(func(ctx context.Context, c *call) (any, error) { return c.ops().CancelCampaign(ctx, c.campaign) }),
		},
		{
			method: http.MethodPost, path: "/v1/campaigns/{id}/close", id: "close-campaign", summary: "End a campaign permanently",
			description: "To close a campaign before the end of its window, send the field `early` as true. A second close " +
				"returns the same answer.",
			action: access.CloseCampaign, body: closeBody{}, answer: campaigns.Ending{},
			codes: []string{"not_loaded", "campaign_lost"},
			do: func(ctx context.Context, c *call) (any, error) {
				in := ops.CampaignClose{Campaign: c.campaign, Early: c.fields.flag("early")}
				if err := c.fields.done(); err != nil {
					return nil, err
				}
				return c.ops().CloseCampaign(ctx, in)
			},
		},
		{
			method: http.MethodPost, path: "/v1/campaigns/{id}/refund", id: "refund",
			summary: "Refund the amount that no user got to the sponsor",
			description: "The field `amount` must equal the field `refund_amount` that GET ending returns. 202 means that " +
				"grants are still being settled and nothing was refunded: send the request again. A second refund returns the " +
				"same answer.",
			action: access.Refund, body: refundBody{}, answer: campaigns.Ending{}, accepted: campaigns.Ending{},
			codes: []string{"amount_not_integer_minor_units", "amount_out_of_range", "wrong_amount", "grants_missing",
				"not_closed", "not_loaded", "campaign_lost"},
			do: refund,
		},
		{
			method: http.MethodPost, path: "/v1/campaigns/{id}/reveal", id: "reveal",
			summary:     "Make the seed of a refunded campaign public",
			description: "Returns the disclosure with which everyone can check the draw (`hongbao campaign verify`).",
			action:      access.RevealCampaign, body: empty{}, answer: campaign.Disclosure{},
			codes: []string{"not_refunded"}, inTransaction: true,
			do: plain(func(ctx context.Context, c *call) (any, error) { return c.ops().RevealCampaign(ctx, c.campaign) }),
		},
	}
}

// stateChange returns the operation pause or resume. It works without the ledger, because a pause must not wait
// for a database.
func stateChange(name, summary string, action access.Action,
	do func(o ops.Operations, ctx context.Context, in ops.CampaignPause) (ops.CampaignState, error)) operation {
	return operation{
		method: http.MethodPost, path: "/v1/campaigns/{id}/" + name, id: name + "-campaign", summary: summary,
		description: "The change works while the ledger is down. Once the ledger answers again, it records the change, " +
			"also in its journal.",
		action: action, body: stateBody{}, answer: stateAnswer{}, codes: []string{"not_loaded", "campaign_lost"},
		withoutLedger: true,
		do: func(ctx context.Context, c *call) (any, error) {
			in := ops.CampaignPause{Campaign: c.campaign, Why: c.fields.text("why")}
			if err := c.fields.done(); err != nil {
				return nil, err
			}
			return do(c.ops(), ctx, in)
		},
	}
}

// create funds a campaign. The body has the same format as the file of `hongbao campaign create`.
func create(ctx context.Context, c *call) (any, error) {
	in, err := c.readCampaign()
	if err != nil {
		return nil, err
	}
	return c.ops().FundCampaign(ctx, in)
}

func (c *call) readCampaign() (in ops.CampaignCreate, err error) {
	in.Spec, err = campaign.Read(bytes.NewReader(c.body))
	return in, err
}

// storeCodes stores the codes of a coupon campaign. If there are many, it continues after the answer 202.
func storeCodes(ctx context.Context, c *call, answer any) (any, error) {
	in, err := c.readCampaign()
	if err != nil || in.Spec.Codes == nil {
		return answer, err
	}
	return c.long(ctx, always(answer), jobs.Codes(c.ops().StoreCodes, &in), func(*jobs.Report) any { return answer })
}

// load loads a campaign. If that takes long, it continues after the answer 202.
func load(ctx context.Context, c *call) (any, error) {
	shown, err := c.ops().ShowCampaign(ctx, c.campaign) // fails at once for an unknown campaign
	if err != nil {
		return nil, err
	}
	return c.long(ctx, always(ops.LoadedOf(&shown.Spec, true)), jobs.Load(c.ops(), c.campaign), func(r *jobs.Report) any { return r.Loaded })
}

// long runs an order as a job, or joins the job that runs under its name on any server, and returns the answer that it
// makes of the report. If the job takes longer than Config.Patience, it goes on in the background, and the answer is that
// of begun, with status 202.
func (c *call) long(ctx context.Context, begun func(model.Job) any, o *jobs.Order, answer func(*jobs.Report) any) (any, error) {
	until := time.Now().Add(c.cfg.Patience)
	for {
		x, err := c.jobs.Start(ctx, o.For(&c.who, c.actor))
		if err != nil {
			return nil, err
		}
		report, err := x.Wait(ctx, time.Until(until))
		switch {
		case errors.Is(err, jobs.ErrElsewhere): // with an error, for example: this server does the work again
		case errors.Is(err, jobs.ErrRuns), err == nil && o.Keep != nil && !x.Here(): // the other server stores the whole answer
			return later{begun(x.Job())}, nil
		case report == nil:
			return nil, err
		default:
			return answer(report), err
		}
	}
}

func always(answer any) func(model.Job) any { return func(model.Job) any { return answer } }

// refund refunds what no user got. It answers 202 while grants are still being settled.
func refund(ctx context.Context, c *call) (any, error) {
	in := ops.CampaignRefund{Campaign: c.campaign, Amount: c.fields.amount("amount"),
		Missing: c.fields.number("missing", 1, hongbao.MaxPackets)}
	if err := c.fields.done(); err != nil {
		return nil, err
	}
	ending, err := c.ops().RefundCampaign(ctx, in)
	if !errors.Is(err, payment.ErrSettling) {
		return ending, err
	}
	if ending, err = c.ops().CampaignEnding(ctx, c.campaign); err != nil {
		return nil, err
	}
	return later{ending}, nil
}
