package serve

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/flatjson"
	"github.com/hongbao-project/hongbao/internal/base/guard"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

// Limits of a batch. One call to Redis can decide maxBatch grabs.
const (
	maxBatch      = 128
	maxBatchBytes = 128 << 10
)

// Keys identifies callers by their API keys; access.Authority implements it.
type Keys interface {
	Identify(ctx context.Context, keyText string) (access.Caller, error)
}

// BatchGrab is one grab in a batch. The result of an invalid grab is a problem; the other grabs are decided.
type BatchGrab struct {
	User      string `json:"user" pattern:"^[!-~]{1,128}$" doc:"Id of the user for whom the gateway grabs."`
	RequestID string `json:"request_id" pattern:"^[!-~]{1,128}$" doc:"Id of this grab. A repeat must have the same id; another grab of the user needs a new one."`
	Facts     string `json:"facts,omitempty" doc:"Facts of the grab that the campaign's limits count by, such as device=d1 channel=app."`
}

type batchRequest struct {
	Grabs []BatchGrab `json:"grabs" minItems:"1" maxItems:"128" nullable:"false" doc:"The grabs to decide. Several may be of the same user."`
}

// BatchResult is the result of one grab of a batch: an answer, or a problem.
type BatchResult struct {
	Answer     *GrabAnswer  `json:"answer,omitempty" doc:"The decision. Present if the grab was decided."`
	Problem    *web.Problem `json:"problem,omitempty" doc:"Why the grab was not decided. Present if it was not decided."`
	RetryAfter int          `json:"retry_after,omitempty" doc:"Seconds to wait before sending this grab again. Present with some problems only."`
}

// BatchAnswer has a result for each grab of a batch, in the same order.
type BatchAnswer struct {
	Results []BatchResult `json:"results" nullable:"false" doc:"One result for each grab, in the order of the grabs."`
}

// grabBatch answers POST /v1/campaigns/{id}/grabs:batch. An invalid grab does not affect the others. All grabs go to
// the producer concurrently, so that it can decide them in one call to Redis.
func (s *Server) grabBatch(w http.ResponseWriter, r *http.Request) error {
	id, key, err := s.byKey(r, access.Grab)
	if err != nil {
		return s.refused(r, 1, err) // of unknown length: the body is not read
	}
	if err := noQuery(r); err != nil {
		return err
	}
	o, err := web.ReadObject(w, r, web.Body{Bytes: maxBatchBytes, List: "grabs", Items: maxBatch,
		TooMany: "grabs_invalid", Incomplete: "nothing was grabbed; send the request again"})
	if err != nil {
		return err
	}
	items, _ := o["grabs"].([]flatjson.Object)
	switch {
	case len(o) > 1 || len(o) == 1 && o["grabs"] == nil:
		return web.Refuse("unknown_field", "the body has grabs only")
	case len(items) == 0:
		return web.Refuse("grabs_invalid", "want a list of 1 to 128 grabs")
	}
	if wait := s.keys.take(key, len(items)-1, time.Now()); wait > 0 { // byKey has already counted one request
		return s.refused(r, len(items), rateLimited(wait))
	}
	results, answerID := make([]BatchResult, len(items)), w.Header().Get(web.RequestID)
	var all sync.WaitGroup
	for i, item := range items {
		all.Go(func() {
			err := guard.Call(s.log, func() (err error) {
				results[i].Answer, err = s.grabItem(r, id, item)
				return err
			})
			if err == nil {
				return
			}
			p, wait := web.Explain(r, answerID, s.log, zap.DebugLevel, err)
			results[i] = BatchResult{Problem: &p, RetryAfter: wait}
		})
	}
	all.Wait()
	// A grab that an outage refused costs no rate: otherwise the retries after the outage would be refused.
	refused := 0
	for i := range results {
		if p := results[i].Problem; p != nil && p.Code == "unavailable" {
			refused++
		}
	}
	s.keys.giveBack(key, refused)
	web.WriteJSON(w, http.StatusOK, &BatchAnswer{results})
	return nil
}

// grabItem decides one grab of a batch.
func (s *Server) grabItem(r *http.Request, campaign string, o flatjson.Object) (*GrabAnswer, error) {
	for name := range o {
		if name != "user" && name != "request_id" && name != "facts" {
			return nil, web.Refuse("unknown_field", "a grab has user, request_id and facts only")
		}
	}
	g := hongbao.Grab{Campaign: campaign}
	var err error
	if g.User, err = userOf(o.Text("user")); err != nil {
		return nil, err
	}
	if o["request_id"] == nil {
		return nil, web.Refuse("request_id_required", "send a request_id: if the grab was granted, a repeat with it gets the same receipt")
	}
	if g.RequestID, err = requestID(o); err != nil {
		return nil, err
	}
	facts, isText := o.Text("facts")
	if o["facts"] != nil && !isText {
		return nil, web.Refuse("facts_invalid", "write the facts as one text, such as device=d1 channel=app")
	}
	if facts != "" {
		g.Facts = map[string]string{}
	}
	if err = readFacts(facts, s.gatewayFacts, g.Facts); err != nil {
		return nil, err
	}
	if wait := s.limits.take(g.User, 1, time.Now()); wait > 0 {
		return nil, s.refused(r, 1, rateLimited(wait))
	}
	answer, err := s.decide(r.Context(), &g)
	return &answer, err
}

func userOf(user string, ok bool) (string, error) {
	if !ok || hongbao.CheckID(user) != nil {
		return "", web.Refuse("user_invalid", `want 1 to 128 printable ASCII characters without spaces, and not "-"`)
	}
	return user, nil
}

// byKey checks the API key of a request. It returns the campaign in the path and the key's id, if the key permits
// the action on the campaign. A denied request counts for the key's rate, too, because the ledger records each
// denial.
func (s *Server) byKey(r *http.Request, action access.Action) (campaign, id string, err error) {
	key := web.Bearer(r)
	if key == "" || s.deps.Keys == nil {
		return "", "", unauthorized(nil)
	}
	who, err := s.deps.Keys.Identify(access.For(r.Context(), action), key)
	if errors.Is(err, access.ErrUnauthorized) {
		return "", "", unauthorized(err)
	}
	if err != nil {
		return "", "", &web.Refusal{Code: "unavailable", Detail: "send the same request again", Wait: retryAfter, Cause: err}
	}
	if wait := s.keys.take(who.Key, 1, time.Now()); wait > 0 {
		return "", "", rateLimited(wait)
	}
	if campaign, err = web.CampaignOf(r); err != nil {
		return "", "", err
	}
	err = who.Check(action, campaign)
	if err != nil {
		s.deps.Denied(access.As(r.Context(), who.Actor("")), action, campaign, err)
	}
	switch {
	case errors.Is(err, access.ErrNotInScope):
		return "", "", web.Refuse("unknown_campaign", "check the id")
	case err != nil:
		return "", "", web.Refuse("forbidden", "use a key whose role may do this")
	}
	return campaign, who.Key, nil
}

// userReceipts answers GET /v1/campaigns/{id}/grabs?user=. The answer has no coupon codes, because only the user
// may see them.
func (s *Server) userReceipts(w http.ResponseWriter, r *http.Request) error {
	id, _, err := s.byKey(r, access.ReadGrants)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	if len(query) != 1 || len(query["user"]) != 1 {
		return web.Refuse("user_invalid", "want ?user= with one user, and no other parameter")
	}
	user, err := userOf(query["user"][0], true)
	if err != nil {
		return err
	}
	held, err := s.deps.Reader.Receipts(r.Context(), id, user)
	if err != nil {
		return unread(err)
	}
	out := receiptsOf(&held)
	for i := range out.Receipts {
		out.Receipts[i].Code = ""
	}
	web.WriteJSON(w, http.StatusOK, out)
	return nil
}
