package ops

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/find"
)

var granted = time.Date(2026, 2, 17, 12, 0, 3, 120_000_000, time.UTC)

// oneGrant is the trail of a grant that the sinks have not finished. change changes it.
func oneGrant(change func(t *find.Trail, s *find.TrailStep)) *find.Trail {
	t := &find.Trail{Campaign: "rain", Currency: "CNY", Unread: []find.Unread{}, Steps: []find.TrailStep{{
		Packet:  17,
		Receipt: &find.TrailGrant{Event: "0-3", User: "u1", Amount: 143, RequestID: "r1", Time: granted},
		Sinks:   []find.TrailSink{{Sink: "balance"}, {Sink: "kafka"}},
	}}}
	t.State = "ended"
	t.Terms = &find.TrailTerms{From: granted.Add(-3 * time.Second), To: granted.Add(time.Hour), TimeZone: "Asia/Shanghai", MostHeld: 1}
	change(t, &t.Steps[0])
	return t
}

func pay(s *find.TrailStep, late time.Duration) {
	at := granted.Add(late)
	s.Ledger, s.Paid, s.Sinks[0].Finished = s.Receipt, &at, true
}

func publish(s *find.TrailStep) {
	s.Topic, s.Sinks[1].Finished = &find.TrailRecord{Partition: 1, Offset: 4, Time: granted.Add(1200 * time.Millisecond)}, true
}

// grantCases have the sentence of a grant in each state.
var grantCases = []struct {
	state  WhyState
	says   string
	change func(t *find.Trail, s *find.TrailStep)
}{
	{WhyDelivered, "paid 0.2 s later, announced 1.2 s later.", func(_ *find.Trail, s *find.TrailStep) {
		pay(s, 200*time.Millisecond)
		publish(s)
	}},
	{WhyDelivered, "paid at 2026-02-17 20:05:03 (Asia/Shanghai), announced 1.2 s later.", func(_ *find.Trail, s *find.TrailStep) {
		pay(s, 5*time.Minute)
		publish(s)
	}},
	{WhyDelivered, "paid, announced 1.2 s later.", func(_ *find.Trail, s *find.TrailStep) { // the clocks differ
		pay(s, -time.Second)
		publish(s)
	}},
	{WhyDelivered, "paid 0.2 s later.", func(_ *find.Trail, s *find.TrailStep) { // a deployment without Kafka
		pay(s, 200*time.Millisecond)
		s.Sinks = s.Sinks[:1]
	}},
	{WhyDelivered, "paid 0.2 s later, announced.", func(_ *find.Trail, s *find.TrailStep) { // deleted from the topic by now
		pay(s, 200*time.Millisecond)
		s.Sinks[1].Finished = true
	}},
	{WhyWaiting, "not paid yet: it waits, and sink balance works, not announced yet: no worker runs for sink kafka.",
		func(_ *find.Trail, s *find.TrailStep) {
			s.Sinks[0].State, s.Sinks[1].State = deliveries.SinkWorking, deliveries.SinkNoWorker
		}},
	{WhyWaiting, "not paid yet: sink balance is paused by ann: audit, announced 1.2 s later.", func(_ *find.Trail, s *find.TrailStep) {
		publish(s)
		s.Sinks[0].TrailWait = find.TrailWait{State: deliveries.SinkPaused, Why: "paused by ann: audit"}
	}},
	{WhyWaiting, "paid at once, not announced yet: at sink kafka a grant has waited for 4m: its target is slow.",
		func(_ *find.Trail, s *find.TrailStep) {
			pay(s, 49*time.Millisecond)
			s.Sinks[1].TrailWait = find.TrailWait{State: deliveries.SinkBehind, Why: "a grant has waited for 4m: its target is slow"}
		}},
	{WhyWaiting, "paid 0.2 s later, not announced yet: Kafka could not be asked.", func(t *find.Trail, s *find.TrailStep) {
		pay(s, 200*time.Millisecond)
		s.Sinks[1].State = deliveries.SinkWorking
		t.Unread = append(t.Unread, find.Unread{Where: "topic", Why: "connection refused"})
	}},
	{WhyUnknown, "perhaps paid: the ledger could not be asked, and grants have waited since 20:01:03, announced 1.2 s later.",
		func(t *find.Trail, s *find.TrailStep) {
			publish(s)
			since := granted.Add(time.Minute)
			s.Sinks[0].TrailWait = find.TrailWait{State: deliveries.SinkBehind, Why: "a grant has waited", Since: &since}
			t.Unread = append(t.Unread, find.Unread{Where: "ledger", Why: "connection refused"})
		}},
	{WhyWaiting, "paid 0.2 s later, not announced yet: Kafka could not be asked, and grants have waited since 20:01:03.",
		func(t *find.Trail, s *find.TrailStep) {
			pay(s, 200*time.Millisecond)
			since := granted.Add(time.Minute)
			s.Sinks[1].TrailWait = find.TrailWait{State: deliveries.SinkBehind, Why: "a grant has waited for 4m: its target is down", Since: &since}
			t.Unread = append(t.Unread, find.Unread{Where: "topic", Why: "connection refused"})
		}},
	{WhyWaiting, "not paid yet: sink balance has not been able to deliver since 20:01:03, not announced yet: Kafka has been down since 20:01:03.",
		func(t *find.Trail, s *find.TrailStep) {
			since := granted.Add(time.Minute)
			for i := range s.Sinks[:2] {
				s.Sinks[i].TrailWait = find.TrailWait{State: deliveries.SinkDown, Why: "worker w1 can't deliver: refused", DownSince: &since}
			}
			t.Unread = append(t.Unread, find.Unread{Where: "topic", Why: "connection refused"})
		}},
	{WhyWaiting, "not paid yet: the balance system was asked, and its answer is not known yet, announced 1.2 s later.",
		func(_ *find.Trail, s *find.TrailStep) {
			publish(s)
			s.Asking = "w1"
		}},
	{WhyPerson, "not paid: it is a dead letter: the account is closed, announced 1.2 s later.", func(_ *find.Trail, s *find.TrailStep) {
		publish(s)
		s.Sinks[0].Finished, s.Sinks[0].Letter, s.Sinks[0].Reason = true, "balance/0/1-1", "the account is closed"
	}},
	{WhyGivenUp, "not paid: its dead letter was dropped by ann: refused, announced 1.2 s later.", func(_ *find.Trail, s *find.TrailStep) {
		publish(s)
		s.Sinks[0].Finished, s.Sinks[0].Dropped = true, "ann: refused"
	}},
	{WhyGivenUp, "paid 0.2 s later, not announced: sink kafka does not owe it.", func(_ *find.Trail, s *find.TrailStep) {
		pay(s, 200*time.Millisecond)
		s.Sinks[1].NotOwed = true
	}},
	{WhyPerson, "not paid: it is in quarantine: amount not planned, announced 1.2 s later.", func(_ *find.Trail, s *find.TrailStep) {
		publish(s)
		s.Sinks[0].Finished, s.Quarantine = true, &find.TrailQuarantine{ID: 7, Reason: "amount_not_planned"}
	}},
	{WhyGivenUp, "not paid: ann decided in quarantine 7: void: forged, announced 1.2 s later.", func(_ *find.Trail, s *find.TrailStep) {
		publish(s)
		s.Sinks[0].Finished = true
		s.Quarantine = &find.TrailQuarantine{ID: 7, ResolvedBy: "ann", Resolution: "void: forged"}
	}},
	{WhyPerson, "not paid: although sink balance has finished it, announced 1.2 s later.", func(_ *find.Trail, s *find.TrailStep) {
		publish(s)
		s.Sinks[0].Finished = true
	}},
	{WhyUnknown, "perhaps paid: the ledger could not be asked, announced 1.2 s later.", func(t *find.Trail, s *find.TrailStep) {
		publish(s)
		s.Sinks[0].Finished = true
		t.Unread = append(t.Unread, find.Unread{Where: "ledger", Why: "connection refused"})
	}},
	{WhyUnknown, "paid 0.2 s later, perhaps announced: neither Kafka nor Redis' dead letters could be asked.",
		func(t *find.Trail, s *find.TrailStep) {
			pay(s, 200*time.Millisecond)
			s.Sinks[1].Finished = true
			t.Unread = append(t.Unread, find.Unread{Where: "topic", Why: "x"}, find.Unread{Where: "redis", Why: "x"})
		}},
	{WhyDelivered, "paid 0.2 s later, announced.", func(t *find.Trail, s *find.TrailStep) { // the done bit says so
		pay(s, 200*time.Millisecond)
		s.Sinks[1].Finished = true
		t.Unread = append(t.Unread, find.Unread{Where: "topic", Why: "connection refused"})
	}},
	{WhyUnknown, "paid 0.2 s later, the rest is not known: Redis could not be asked.", func(t *find.Trail, s *find.TrailStep) {
		pay(s, 200*time.Millisecond)
		s.Receipt, s.Sinks = nil, nil
		t.Unread = append(t.Unread, find.Unread{Where: "redis", Why: "connection refused"})
	}},
	{WhyDelivered, "paid 0.2 s later, announced 1.2 s later, delivered to crm.", func(_ *find.Trail, s *find.TrailStep) {
		pay(s, 200*time.Millisecond)
		publish(s)
		s.Sinks = append(s.Sinks, find.TrailSink{Sink: "crm", Finished: true})
	}},
	{WhyWaiting, "paid 0.2 s later, announced 1.2 s later, not delivered to crm yet: at sink crm a grant has waited for 4m.",
		func(_ *find.Trail, s *find.TrailStep) {
			pay(s, 200*time.Millisecond)
			publish(s)
			s.Sinks = append(s.Sinks, find.TrailSink{Sink: "crm", TrailWait: find.TrailWait{State: deliveries.SinkBehind, Why: "a grant has waited for 4m"}})
		}},
	{WhyPerson, "paid 0.2 s later, announced 1.2 s later, not delivered to crm: it is a dead letter: 422.",
		func(_ *find.Trail, s *find.TrailStep) {
			pay(s, 200*time.Millisecond)
			publish(s)
			s.Sinks = append(s.Sinks, find.TrailSink{Sink: "crm", Finished: true, Letter: "crm/0/1-1", Reason: "422"})
		}},
	{WhyUnknown, "paid 0.2 s later, announced 1.2 s later, perhaps delivered to crm: Redis' dead letters could not be asked.",
		func(t *find.Trail, s *find.TrailStep) {
			pay(s, 200*time.Millisecond)
			publish(s)
			s.Sinks = append(s.Sinks, find.TrailSink{Sink: "crm", Finished: true})
			t.Unread = append(t.Unread, find.Unread{Where: "redis", Why: "x"})
		}},
	{WhyDelivered, "paid 0.2 s later, announced 1.2 s later. u1 is at the limit of 1 packet: further grabs are refused.",
		func(t *find.Trail, s *find.TrailStep) {
			pay(s, 200*time.Millisecond)
			publish(s)
			t.State = "open"
		}},
}

// The sentence of a grant in each state. None claims more than the trail knows.
func TestWhyOfAGrant(t *testing.T) {
	t.Parallel()
	const won = "u1 won 1.43 CNY at 2026-02-17 20:00:03 (Asia/Shanghai), "
	for _, c := range grantCases {
		out := Explain(oneGrant(c.change), "u1")
		require.Equal(t, won+c.says, out.Sentence)
		require.Equal(t, c.state, out.Grants[0].State, c.says)
		steps := out.Grants[0].Steps
		require.Equal(t, "won", steps[0].Step)
		require.Equal(t, granted, *steps[0].At)
		for _, s := range steps {
			require.NotEmpty(t, s.Text, "%s: %v", c.says, s)
		}
	}
}

// A coupon without a value is recorded, not paid. The steps are in the order of time, and those without a time come last.
func TestWhyOfACoupon(t *testing.T) {
	t.Parallel()
	out := Explain(oneGrant(func(t *find.Trail, s *find.TrailStep) {
		t.Currency, t.Terms.Kind = "", hongbao.KindCoupon
		pay(s, 2*time.Second)
		publish(s)
		s.Sinks = append([]find.TrailSink{{Sink: "crm"}}, s.Sinks...)
	}), "u1")
	require.Contains(t, out.Sentence, "u1 won coupon 17 at 2026-02-17 20:00:03 (Asia/Shanghai), ")
	require.Contains(t, out.Sentence, ", recorded 2.0 s later, announced 1.2 s later.")
	var steps []string
	for _, s := range out.Grants[0].Steps {
		steps = append(steps, s.Step)
	}
	require.Equal(t, []string{"won", "announced", "recorded", "not delivered to crm"}, steps)
}

// The reason of an outage is said once: by a step, or else by the error.
func TestWhySaysAReasonOnce(t *testing.T) {
	t.Parallel()
	out := Explain(oneGrant(func(t *find.Trail, s *find.TrailStep) {
		pay(s, time.Second)
		s.Sinks[1].Finished = true
		t.Unread = append(t.Unread, find.Unread{Where: "topic", Why: "connection refused"})
	}), "u1")
	require.Contains(t, out.Grants[0].Steps[2].Text, "connection refused")
	require.EqualError(t, out.CheckRead(), "topic could not be asked: the steps say why")
	out.Grants = nil
	require.EqualError(t, out.CheckRead(), "topic could not be asked: connection refused")
}

// The sentence about a user without a grant, in each state of the campaign.
func TestWhyOfNothing(t *testing.T) {
	t.Parallel()
	ledger, redis := find.Unread{Where: "ledger", Why: "x"}, find.Unread{Where: "redis", Why: "x"}
	for _, c := range []struct {
		state, note string
		says        string
		withheld    int64
		unread      []find.Unread
		kept        string
	}{
		{state: "created", says: "u1 has won nothing in rain: the campaign is not loaded, so no one can win yet."},
		{state: "loading", says: "u1 has won nothing in rain: the campaign is being loaded, so no one can win yet."},
		{state: "not_started", says: "u1 has won nothing in rain: the campaign opens at 2026-02-17 20:00:00 (Asia/Shanghai)."},
		{state: "open", says: "u1 has won nothing in rain: the campaign is open and ends at 2026-02-17 21:00:03 (Asia/Shanghai), and a " +
			"refused grab leaves no record."},
		{state: "paused", note: "Paused by ann: the shop is closed", says: "u1 has won nothing in rain: the campaign is paused (Paused by " +
			"ann: the shop is closed), and a refused grab leaves no record."},
		{state: "sold_out", says: "u1 has won nothing in rain: all packets are gone, and a refused grab leaves no record."},
		{state: "ended", withheld: 2, says: "u1 has won nothing in rain: the campaign ended at 2026-02-17 21:00:03 (Asia/Shanghai), and a " +
			"refused grab leaves no record; 2 packets are withheld, because an unknown user may have won before Redis lost the record " +
			"(hongbao hole list rain)."},
		{state: "refunded", says: "u1 has won nothing in rain: the campaign is over and its sponsor got back what no one won, and a refused " +
			"grab leaves no record."},
		{state: "frozen", note: "Grabs are refused", says: "u1 has won nothing in rain: the campaign is frozen (Grabs are refused)."},
		{state: "open", unread: []find.Unread{ledger}, says: "It is not known whether u1 won in rain: the ledger could not be asked, and " +
			"Redis has no grant."},
		{state: "unread", unread: []find.Unread{redis}, says: "It is not known whether u1 won in rain: Redis could not be asked, and the " +
			"ledger has no grant."},
		{state: "unread", unread: []find.Unread{redis, ledger}, says: "It is not known whether u1 won in rain: neither Redis nor the " +
			"ledger could be asked."},
		{state: "refunded", kept: "rain.jsonl.gz", unread: []find.Unread{ledger},
			says: "The grants of rain are archived: the file rain.jsonl.gz says what u1 won."},
	} {
		trail := oneGrant(func(t *find.Trail, _ *find.TrailStep) { t.Steps = nil })
		trail.State, trail.Note, trail.Withheld, trail.Unread = c.state, c.note, c.withheld, c.unread
		trail.Kept = optional.Text(c.kept)
		out := Explain(trail, "u1")
		require.Equal(t, c.says, out.Sentence)
		require.Empty(t, out.Grants)
		require.Equal(t, len(c.unread) > 0 && c.kept == "", out.CheckRead() != nil, "an archive is not an outage")
	}
}

// Several grants are summed up in one sentence, and each has its own.
func TestWhyOfSeveralGrants(t *testing.T) {
	t.Parallel()
	trail := oneGrant(func(t *find.Trail, s *find.TrailStep) {
		second := *s
		second.Packet, second.Sinks = 18, []find.TrailSink{{Sink: "balance", TrailWait: find.TrailWait{State: deliveries.SinkWorking}}}
		pay(s, time.Second)
		publish(s)
		t.Steps = append(t.Steps, second)
	})
	out := Explain(trail, "u1")
	require.Equal(t, "u1 won 2 packets, 2.86 CNY in all: 1 delivered, 1 waits.", out.Sentence)
	require.Contains(t, out.Grants[1].Sentence, "not paid yet: it waits")
}
