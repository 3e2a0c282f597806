package console

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
)

// quarantinePage is the data of the page of grants in quarantine. Waiting counts those of them that wait for a decision,
// and Sums is their money.
type quarantinePage struct {
	titles
	All     bool
	Grants  []model.Quarantined
	Next    int64
	Waiting int64
	Sums    model.Sums
}

func (c *Console) quarantine(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	p := quarantinePage{All: r.URL.Query().Get("all") != ""}
	after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64) // without a valid number, start at the beginning
	list, err := c.source.Quarantine(r.Context(), after, p.All)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	if len(list) == model.PageLen {
		p.Next = list[len(list)-1].ID
	}
	var ids []string
	for i := range list {
		q := &list[i]
		if !who.Sees(q.Grant.Campaign) {
			continue
		}
		p.Grants, ids = append(p.Grants, *q), append(ids, q.Grant.Campaign)
		if q.Resolved.IsZero() {
			p.Waiting++
			p.Sums.Add(q.Grant.Amount, q.Grant.Currency)
		}
	}
	p.titles = c.titlesOf(r.Context(), ids...)
	c.show(w, r, http.StatusOK, "quarantine", page{Title: model.Say("Quarantine"), Caller: who, View: p, Done: done(r.URL),
		Meta: model.Say("A grant that contradicts the ledger or the plan waits here, unpaid, until a person decides.")})
}

// quarantinedPage is the data of the page of one grant in quarantine.
type quarantinedPage struct {
	titles
	*model.Quarantined
	Say, Advice model.Sentence
}

// quarantineAdvice says what to do about the grants with each reason.
var quarantineAdvice = map[model.QuarantineReason]model.Sentence{
	"exists_with_different_user": model.Say("The first payment stays. If Redis lost writes, perhaps both users were told that they won: decide " +
		"whether the second one is paid, too. Otherwise somebody changed the event."),
	"exists_with_different_amount": changedEvent, "amount_not_planned": changedEvent, "packet_not_planned": changedEvent,
	"exists_with_different_shard": againGranted, "exists_with_different_seq": againGranted,
	"unknown_campaign": model.Say("If no ledger has this campaign, pay its users yourself, and void their grants."),
	"over_funded":      model.Say("Redis granted more than the sponsor funded: run an audit."),
	"after_refund":     model.Say("Redis lost writes after the close, or somebody forged the event: run an audit. The sponsor has the money."),
}

var (
	changedEvent = model.Say("Somebody changed the event, or the packets were not loaded from this plan. Find out who can write to Redis, and run " +
		"an audit.")
	againGranted = model.Say("If Redis lost writes, it granted the packet to the same user again, who is paid: void it. Otherwise somebody " +
		"changed the event.")
)

// about says what came, and what the ledger had then.
func (p *quarantinedPage) about() model.Sentence {
	g := &p.Grant
	switch {
	case p.Has == nil:
		return model.Say("%s came as the winner of packet %d of %s. The ledger had paid it to nobody.", g.User, g.Packet, p.Name(g.Campaign))
	case p.Has.User == g.User:
		return model.Say("%s came as the winner of packet %d of %s. The ledger had paid it to the same user, as another grant.", g.User, g.Packet,
			p.Name(g.Campaign))
	}
	return model.Say("%s came as the winner of packet %d of %s. The ledger had paid it to %s.", g.User, g.Packet, p.Name(g.Campaign), p.Has.User)
}

// oneQuarantined reads the grant whose number is in the path.
func (c *Console) oneQuarantined(r *http.Request, who *access.Caller, a access.Action) (model.Quarantined, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return model.Quarantined{}, fmt.Errorf("quarantine %.20q: %w", r.PathValue("id"), model.ErrNotFound)
	}
	q, err := c.source.Quarantined(r.Context(), id)
	if err == nil && !who.Sees(q.Grant.Campaign) {
		c.hidden(r, a, q.Grant.Campaign)
		err = fmt.Errorf("quarantine %d: %w", id, model.ErrNotFound)
	}
	return q, err
}

func (c *Console) quarantined(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	q, err := c.oneQuarantined(r, who, access.ReadQuarantine)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	v := quarantinedPage{titles: c.titlesOf(r.Context(), q.Grant.Campaign), Quarantined: &q, Advice: quarantineAdvice[q.Reason]}
	v.Say = v.about()
	c.show(w, r, http.StatusOK, "quarantined", page{Title: model.Say("Quarantine %s", strconv.FormatInt(q.ID, 10)), Own: true, Caller: who, View: &v,
		Done: done(r.URL)})
}

func (c *Console) decide(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	q, err := c.oneQuarantined(r, who, access.DecideQuarantine)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	in := ops.Decide{ID: q.ID, Decision: r.PostFormValue("decision"), Why: strings.TrimSpace(r.PostFormValue("why"))}
	if _, err := c.operations(who).DecideQuarantined(r.Context(), in); err != nil {
		c.failed(w, r, err)
		return
	}
	http.Redirect(w, r, fmt.Sprintf("/quarantine/%d?done=decided", q.ID), http.StatusSeeOther)
}
