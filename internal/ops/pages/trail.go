package pages

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/find"
)

// Trail follows the grants of a user, or of a packet, and describes them in words.
func (s *Source) Trail(ctx context.Context, q model.Question) (out model.Trails, err error) {
	t, err := find.Of(s.App).Trail(ctx, find.TrailOf{Campaign: q.Campaign, User: q.User, Packet: q.Packet})
	if err != nil {
		return out, err
	}
	unread := map[string]bool{}
	for _, u := range t.Unread {
		unread[u.Where] = true
		out.Notes = append(out.Notes, fmt.Sprintf("%s could not be read: %s", u.Where, u.Why))
	}
	for i := range t.Steps {
		out.List = append(out.List, s.describe(&t.Steps[i], t.Currency, unread))
	}
	return out, nil
}

// describe describes in words where a grant is.
func (s *Source) describe(step *find.TrailStep, currency string, unread map[string]bool) model.Trail {
	t := model.Trail{Packet: step.Packet}
	add := func(name, where string, there bool, is, isNot string) {
		switch {
		case there:
			isNot = is
		case unread[where]:
			isNot = "It could not be read."
		}
		t.Stations = append(t.Stations, model.StoreView{Name: name, Present: there, Text: isNot})
	}
	said := func(g *find.TrailGrant) string {
		if g == nil {
			return ""
		}
		t.User, t.Amount = g.User, money.Text(g.Amount, currency)
		return fmt.Sprintf("%s for %s, event %s, granted %s, request id %s.", t.Amount, g.User, g.Event,
			g.Time.Format(time.RFC3339Nano), g.RequestID)
	}
	paid := said(step.Ledger)
	add("Receipt in Redis", "redis", step.Receipt != nil, said(step.Receipt),
		"Redis has no receipt: the campaign has left it, or the packet is not granted.")
	entry := ""
	if e := step.Entry; e != nil {
		entry = fmt.Sprintf("Entry %s, epoch %d, with %d grants.", e.ID, e.Epoch, e.Grants)
	}
	add("Entry of the stream", "redis", step.Entry != nil, entry,
		"The stream no longer has it: an entry is trimmed once every sink has finished it.")
	missing := map[string]string{}
	for _, sink := range step.Sinks {
		switch {
		case sink.Letter != "":
			missing[sink.Sink] = fmt.Sprintf("Sink %s made it a dead letter, %s, which waits for a decision.", sink.Sink, sink.Letter)
			add("Sink "+sink.Sink, "redis", false, "", fmt.Sprintf("Dead letter %s: %s", sink.Letter, sink.Reason))
		case sink.Dropped != "":
			missing[sink.Sink] = "Its dead letter was dropped by " + sink.Dropped
			add("Sink "+sink.Sink, "redis", false, "", "Its dead letter was dropped by "+sink.Dropped)
		case sink.NotOwed:
			missing[sink.Sink] = fmt.Sprintf("Sink %s does not owe it.", sink.Sink)
			add("Sink "+sink.Sink, "redis", false, "", "Not owed: the sink was added later, or was removed at that time.")
		default:
			is := "Finished."
			if unread["redis"] { // perhaps the dead letters could not be read, so the grant may be one
				is = "Finished: delivered, or made a dead letter."
			}
			add("Sink "+sink.Sink, "redis", sink.Finished, is, "Not finished yet.")
		}
	}
	add("Row of the ledger", "ledger", step.Ledger != nil, paid, "The packet is not paid. "+cmp.Or(missing[configs.SinkBalance],
		"If sink balance has finished it, look at the quarantine."))
	if s.Has(configs.SinkKafka) {
		record := ""
		if r := step.Topic; r != nil {
			record = fmt.Sprintf("Partition %d, offset %d.", r.Partition, r.Offset)
		}
		add("Record of the topic", "topic", step.Topic != nil, record,
			"The topic does not have it. "+missing[configs.SinkKafka])
	}
	return t
}
