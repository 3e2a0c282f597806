package pages

import (
	"context"
	"strconv"

	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
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
		out.Notes = append(out.Notes, model.Sentence{Text: "%s could not be read.", Args: []any{u.Where}, Original: u.Why})
	}
	why := ops.Explain(t, q.User)
	if out.Zone = why.TimeZone; q.User != "" {
		out.Nothing = why.Nothing
	}
	for i := range t.Steps {
		x := s.describe(&t.Steps[i], t.Currency, unread)
		x.Clauses = why.Grants[i].Clauses
		for _, step := range why.Grants[i].Steps {
			y := model.TrailStep{State: string(step.State), Name: step.Name, Text: step.Say}
			if step.At != nil {
				y.At = *step.At
			}
			x.Steps = append(x.Steps, y)
		}
		out.List = append(out.List, x)
	}
	return out, nil
}

// describe describes in words where a grant is.
func (s *Source) describe(step *find.TrailStep, currency string, unread map[string]bool) model.Trail {
	t := model.Trail{Packet: step.Packet}
	add := func(name model.Sentence, where string, there bool, is, isNot model.Sentence) {
		switch {
		case there:
			isNot = is
		case unread[where]:
			isNot = model.Say("It could not be read.")
		}
		t.Stations = append(t.Stations, model.StoreView{Name: name, Present: there, Text: isNot})
	}
	said := func(g *find.TrailGrant) (nothing model.Sentence) {
		if g == nil {
			return nothing
		}
		t.User, t.Amount = g.User, money.Text(g.Amount, currency)
		return model.Say("%s for %s, event %s, granted %s, request id %s.", t.Amount, g.User, g.Event, g.Time, g.RequestID)
	}
	paid := said(step.Ledger)
	add(model.Say("Receipt in Redis"), "redis", step.Receipt != nil, said(step.Receipt),
		model.Say("Redis has no receipt: the campaign has left it, or the packet is not granted."))
	var entry model.Sentence
	if e := step.Entry; e != nil {
		entry = model.Say("Entry %s, epoch %d, with %d grants.", e.ID, e.Epoch, e.Grants)
	}
	add(model.Say("Entry of the stream"), "redis", step.Entry != nil, entry,
		model.Say("The stream no longer has it: an entry is trimmed once every sink has finished it."))
	missing := map[string]model.Sentence{}
	for i := range step.Sinks {
		sink := &step.Sinks[i]
		present, text, why := atSink(sink, unread["redis"])
		add(model.Say("Sink %s", sink.Sink), "redis", present, text, text)
		if why != nil {
			missing[sink.Sink] = *why
		}
	}
	unpaid, known := missing[configs.SinkBalance]
	if !known {
		unpaid = model.Say("If sink balance has finished it, look at the quarantine.")
	}
	add(model.Say("Row of the ledger"), "ledger", step.Ledger != nil, paid, model.Say("The packet is not paid. %s", unpaid))
	if s.Has(configs.SinkKafka) {
		var record model.Sentence
		if r := step.Topic; r != nil {
			record = model.Say("Partition %d, offset %s.", r.Partition, strconv.FormatInt(r.Offset, 10))
		}
		absent := model.Say("The topic does not have it.")
		if why, known := missing[configs.SinkKafka]; known {
			absent = model.Say("The topic does not have it. %s", why)
		}
		add(model.Say("Record of the topic"), "topic", step.Topic != nil, record, absent)
	}
	return t
}

// atSink describes a grant at a sink. missing says why the sink's target does not have the grant; nil if that is not
// known.
func atSink(sink *find.TrailSink, unread bool) (present bool, text model.Sentence, missing *model.Sentence) {
	switch {
	case sink.Letter != "":
		return false, model.Sentence{Text: "Dead letter %s.", Args: []any{sink.Letter}, Original: sink.Reason},
			new(model.Say("Sink %s made it a dead letter, %s, which waits for a decision.", sink.Sink, sink.Letter))
	case sink.Dropped != "":
		text = model.Say("Its dead letter was dropped by %s", sink.Dropped)
		return false, text, &text
	case sink.NotOwed:
		return false, model.Say("Not owed: the sink was added later, or was removed at that time."),
			new(model.Say("Sink %s does not owe it.", sink.Sink))
	case !sink.Finished:
		return false, model.Say("Not finished yet."), nil
	case unread: // perhaps the dead letters could not be read, so the grant may be one
		return true, model.Say("Finished: delivered, or made a dead letter."), nil
	}
	return true, model.Say("Finished."), nil
}
