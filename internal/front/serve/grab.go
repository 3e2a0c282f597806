package serve

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/flatjson"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// retryAfter is the delay after which a client should repeat an undecided grab. By then the producer has
// already retried it for a while.
const retryAfter = time.Second

type grabRequest struct {
	RequestID string `json:"request_id,omitempty" minLength:"1" maxLength:"128" pattern:"^[!-~]+$" doc:"Id of this grab, chosen by the client. A repeat must have the same id; another grab of the user needs a new one."`
}

// Receipt is a packet that a user has got.
type Receipt struct {
	Packet    int64     `json:"packet" doc:"Number of the packet in the campaign."`
	Amount    int64     `json:"amount" doc:"Amount of the packet, in minor units of the currency (cents, fen)."`
	Event     string    `json:"event" doc:"Id of the grant's event, as SHARD-SEQ. The topic has the same id."`
	Time      time.Time `json:"time" doc:"Time when the grab was granted."`
	RequestID string    `json:"request_id,omitempty" doc:"Request id of the grab that was granted."`
	Code      string    `json:"code,omitempty" doc:"The coupon's code. Absent if the campaign has no codes."`
}

// answered converts receipts to the form of the API.
func answered(list []hongbao.Receipt) []Receipt {
	out := make([]Receipt, len(list))
	for i := range list {
		r := &list[i]
		out[i] = Receipt{r.Packet, int64(r.Amount), r.EventID(), r.Time.UTC(), r.RequestID, r.Code}
	}
	return out
}

// LimitHit is the limit that refused a grab.
type LimitHit struct {
	By     string    `json:"by" doc:"What the limit counts by: 'user', or the name of a fact."`
	Per    string    `json:"per" enum:"campaign,day,hour" doc:"The period for which the limit counts packets."`
	Max    int64     `json:"max" doc:"The most packets in one period."`
	Resets time.Time `json:"resets,omitzero" doc:"Time when the next period begins. Absent for a limit per campaign."`
}

// GrabAnswer is the answer to a decided grab.
type GrabAnswer struct {
	Outcome   string    `json:"outcome" enum:"granted,already_granted,limit_reached,sold_out,not_started,ended,paused" doc:"How the grab was decided. docs/http.md explains each outcome."`
	Currency  string    `json:"currency,omitempty" doc:"Currency of the amounts in 'receipts', ISO 4217."`
	Receipts  []Receipt `json:"receipts,omitempty" nullable:"false" doc:"With 'granted': the new receipt. With 'already_granted': all receipts of the user in this campaign."`
	Limit     *LimitHit `json:"limit,omitempty" doc:"The limit that refused the grab. Present with 'limit_reached' only."`
	Starts    time.Time `json:"starts,omitzero" doc:"Time when grabs begin. Present with 'not_started' only."`
	Time      time.Time `json:"time" doc:"Time of the decision."`
	RequestID string    `json:"request_id,omitempty" doc:"Request id of this grab. If the request had none, the server has drawn one."`
}

// grab answers POST /v1/campaigns/{id}/grabs.
func (s *Server) grab(w http.ResponseWriter, r *http.Request, who *caller) error {
	id, err := web.CampaignOf(r)
	if err != nil {
		return err
	}
	body := web.Body{Bytes: web.SingleBody, Incomplete: "nothing was grabbed; send the request again"}
	data, err := web.ReadBody(w, r, body)
	if err != nil {
		return err
	}
	g := hongbao.Grab{Campaign: id, User: who.user, Facts: who.facts}
	if g.RequestID, err = readGrab(data, body); err != nil {
		return err
	}
	if who.byKey && g.RequestID == "" {
		return web.Refuse("request_id_required", "send a request_id: if the grab was granted, a gateway's repeat with it gets the same receipt")
	}
	out, err := s.decide(r.Context(), &g)
	if err != nil {
		return err
	}
	web.WriteText(w, http.StatusOK, writeGrab(&out))
	return nil
}

// readGrab returns the request id in the body of a grab, or "" if it has none.
func readGrab(data []byte, body web.Body) (id string, err error) {
	if id, ok := plainGrab(data); ok {
		return id, nil
	}
	o, err := web.ParseObject(data, body)
	if err != nil {
		return "", err
	}
	for name := range o {
		if name != "request_id" {
			return "", web.Refuse("unknown_field", "the body has request_id only; user and facts come with the credentials")
		}
		if id, err = requestID(o); err != nil {
			return "", err
		}
	}
	return id, nil
}

// plainGrab is a fast path for the body that nearly all clients send: without spaces, and with a valid id without
// escapes.
func plainGrab(data []byte) (id string, ok bool) {
	id, starts := strings.CutPrefix(string(data), `{"request_id":"`)
	id, ends := strings.CutSuffix(id, `"}`)
	return id, starts && ends && !strings.ContainsAny(id, `"\`) && hongbao.CheckID(id) == nil
}

func requestID(o flatjson.Object) (string, error) {
	id, _ := o.Text("request_id")
	if hongbao.CheckID(id) != nil {
		return "", web.Refuse("request_id_invalid", `want 1 to 128 printable ASCII characters without spaces, and not "-"`)
	}
	return id, nil
}

// decide passes a grab to the producer and returns the answer for the caller.
func (s *Server) decide(ctx context.Context, g *hongbao.Grab) (GrabAnswer, error) {
	answer, err := s.deps.Grabber.Grab(ctx, g)
	if err != nil {
		return GrabAnswer{}, grabProblem(g, err)
	}
	return s.answer(ctx, g, &answer)
}

// grabProblem returns the error for a grab that could not be decided. The producer permanently rejects a valid grab
// only if a request id or a fact is missing.
func grabProblem(g *hongbao.Grab, err error) error {
	switch hongbao.ClassOf(err) {
	case hongbao.ClassPermanent:
	case hongbao.ClassTransient: // an earlier try with the same request id may have been granted
		return &web.Refusal{Code: "unavailable", Detail: "this try did nothing; repeat it with the same request id",
			Wait: retryAfter, Cause: err}
	default:
		return err
	}
	if g.RequestID == "" {
		return &web.Refusal{Code: "request_id_required", Detail: "send a request_id, a new one for each packet", Cause: err}
	}
	return &web.Refusal{
		Code: "fact_missing", Detail: "the token or the gateway must send the fact, as serve.facts declares", Cause: err,
	}
}

// answer converts a decision to the form of the API.
func (s *Server) answer(ctx context.Context, g *hongbao.Grab, a *hongbao.Answer) (GrabAnswer, error) {
	switch {
	case a.Outcome == hongbao.OutcomeUnknownCampaign:
		return GrabAnswer{}, web.Refuse(string(a.Outcome), "check the id")
	case !a.Outcome.Final():
		return GrabAnswer{}, &web.Refusal{Code: string(a.Outcome), Detail: "send the same request again", Wait: retryAfter}
	}
	out := GrabAnswer{Outcome: string(a.Outcome), Time: a.Time.UTC(), RequestID: g.RequestID}
	if a.Outcome == hongbao.OutcomeEnded {
		held, err := s.paid(ctx, g)
		if err != nil {
			return GrabAnswer{}, err
		}
		if len(held.Receipts) > 0 {
			out.Outcome = string(hongbao.OutcomeAlreadyGranted)
			out.Receipts, out.Currency = answered(held.Receipts), held.Currency
			return out, nil
		}
	}
	if len(a.Receipts) > 0 {
		out.Receipts, out.Currency = answered(a.Receipts), a.Currency
	}
	if l := a.Limit; l != nil {
		out.Limit = &LimitHit{l.Limit.By, string(l.Limit.Per), l.Limit.Max, utc(l.Resets)}
	}
	out.Starts = utc(a.Starts)
	return out, nil
}

// utc converts t to UTC. The zero time stays as it is.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}
