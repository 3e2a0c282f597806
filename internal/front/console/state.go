package console

import (
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// level says how bad a judgement is. It is also a class of the sheet.
type level string

// The levels. Of calm nothing is judged: there is nothing to judge yet, or what was read is too old.
const (
	levelOK, levelWait, levelBad, levelInfo, levelCalm level = "ok", "wait", "bad", "info", "calm"
)

// judgement is what a page says about a campaign first: one sentence, what it means, and one next step.
type judgement struct {
	// Code is the name of the state, for tests and for the sheet.
	Code  string
	Level level
	Say   model.Sentence
	More  []model.Sentence
	Next  step
}

// step is the next step of a campaign: what to do, what that does, and the button for it, if there is one.
type step struct {
	Title model.Sentence
	Text  []model.Sentence
	// Do are commands that help.
	Do []string
	// Action is what the button needs, and Path where it leads. Post says that the button does it; else a page follows.
	Action access.Action
	Path   string
	Post   bool
	Label  model.Sentence
	// Runbook is the code of the runbook of a fault; "" if there is none.
	Runbook string
}

// facts are what a judgement depends on.
type facts struct {
	*model.Live
	now, read time.Time // read is when Redis and the ledger were read
	every     time.Duration
	// sinks are the states of all sinks; nil if they could not be read.
	sinks []deliveries.SinkStatus
	// differs is how many differences the last audit found for this campaign; -1 if that is not known.
	differs int
	// seen is the last sample with grants of a campaign whose grants can't be read now; nil if there is none.
	seen *model.Sample
}

// staleReads is how many refreshes old a reading may be before nothing of it is judged.
const staleReads = 3

// old reports whether the reading is too old for a judgement.
func (f *facts) old() bool { return f.now.Sub(f.read) > staleReads*max(f.every, time.Second) }

// waits is how long the oldest grant may wait on the way before a page mentions it as more than usual.
const waits = time.Second

// judge decides the state of a campaign: the worst fault, else where it is in its life.
func judge(f *facts) judgement {
	if f.old() {
		return judgement{Code: "old", Level: levelCalm, Say: model.Say("Not up to date: this page is as it was at %s.", f.at(f.read)),
			Next: step{Title: model.Say("Wait, or load the page again")}}
	}
	for _, fault := range []func(*facts) *judgement{unreadable, refused, ledgerDown, noWorker, differs, sinkFault} {
		if j := fault(f); j != nil {
			return *j
		}
	}
	return phase(f)
}

// when is a time of a campaign: pages show it in the campaign's time zone.
type when struct {
	At   time.Time
	zone string
	day  time.Time // a time on this day is shown without its date
}

func (f *facts) at(t time.Time) when { return when{t, f.TimeZone, f.From} }

// Seen returns the time of the last sample.
func (f *facts) seenAt() []model.Sentence {
	if f.seen == nil {
		return nil
	}
	return []model.Sentence{model.Say("The figures are from %s.", f.at(f.seen.At))}
}

func unreadable(f *facts) *judgement {
	switch {
	case f.Status == model.Unread && f.Outage:
		return &judgement{"redis_down", levelBad, model.Say("Redis does not answer: users can't grab now."),
			append([]model.Sentence{model.Say("Users get “try again”. Payments of earlier winners wait, and go on when Redis is back.")}, f.seenAt()...),
			step{Runbook: "redis_down", Title: model.Say("Bring Redis back"), Text: []model.Sentence{
				model.Say("Start it with its data, or let its replica take over. Never start an empty one."),
				model.Say("The campaign can't be paused or closed meanwhile.")}, Do: []string{"hongbao doctor"}}}
	case f.Status == model.Unread:
		return &judgement{"unreadable", levelBad, model.Say("Redis has data of this campaign that can't be read."), f.seenAt(),
			step{Title: model.Say("Find out what Redis has"), Do: []string{"hongbao doctor", "hongbao audit --campaign " + f.ID}}}
	case f.Status == "frozen":
		return &judgement{"frozen", levelWait, model.Say("Frozen: users get “try again”, and nobody is told “not won”."),
			append([]model.Sentence{model.Say("Redis restarted, failed over or lost writes. Workers put back what is missing and open the campaign again; payments wait until then.")}, f.seenAt()...),
			step{Runbook: "shard_frozen", Title: model.Say("Wait, up to a minute"), Text: []model.Sentence{
				model.Say("A worker opens it by itself if it reaches the ledger and the topic. After a minute, run:")},
				Do: []string{"hongbao recover"}}}
	}
	return nil
}

// refused finds a Redis that has no memory for grabs.
func refused(f *facts) *judgement {
	if !f.Full {
		return nil
	}
	return &judgement{"redis_full", levelBad, model.Say("Redis is full: it refuses new grabs."),
		[]model.Sentence{model.Say("Users get “try again”. Redis deletes nothing to make room.")},
		step{Runbook: "redis_memory", Title: model.Say("Give Redis more memory"), Text: []model.Sentence{
			model.Say("Users can grab at once after it. Do not delete keys: they are the receipts of winners.")},
			Do: []string{"redis-cli CONFIG SET maxmemory ...", "hongbao doctor"}}}
}

func ledgerDown(f *facts) *judgement {
	if !f.LedgerUnread {
		return nil
	}
	return &judgement{"ledger_down", levelBad, model.Say("The ledger can't be read: payments wait for it. Grabs do not need it."),
		[]model.Sentence{model.Say("Redis decides who wins. When the ledger is back, workers pay what waits, and nobody is paid twice.")},
		step{Runbook: "sink_down", Title: model.Say("Bring the ledger back"), Text: []model.Sentence{
			model.Say("Do not pause the campaign for it, and do not restart workers: they try again by themselves."),
			model.Say("Close, refund, create and log-in wait for it.")}, Do: []string{"hongbao doctor"}}}
}

// sink returns the state of a sink, or nil if it is not known.
func (f *facts) sink(name string) *deliveries.SinkStatus {
	if i := slices.IndexFunc(f.sinks, func(s deliveries.SinkStatus) bool { return s.Sink == name }); i >= 0 {
		return &f.sinks[i]
	}
	return nil
}

// lag returns what waits for a sink on the campaign's shards.
func (f *facts) lag(sink string) (lag model.Lag, known bool) {
	i := slices.IndexFunc(f.Lags, func(l model.Lag) bool { return l.Sink == sink })
	if i < 0 {
		return lag, false
	}
	return f.Lags[i], true
}

// each returns the first sentence for a campaign of money, and the second one for coupons without an amount, which nobody
// pays.
func (f *facts) each(paid, coupons model.Sentence) model.Sentence {
	if f.Currency == "" {
		return coupons
	}
	return paid
}

func noWorker(f *facts) *judgement {
	s := f.sink(configs.SinkBalance)
	if s == nil || s.State != deliveries.SinkNoWorker || f.Unpaid() == 0 {
		return nil
	}
	return &judgement{"no_worker", levelBad, f.each(model.Say("No worker runs: %d winners wait for their money.", f.Unpaid()),
		model.Say("No worker runs: %d winners are not in the ledger yet.", f.Unpaid())),
		[]model.Sentence{model.Say("They keep their packets, and nobody is paid twice.")},
		step{Runbook: "no_worker", Title: model.Say("Start a worker"), Text: []model.Sentence{model.Say("It pays the waiting winners. The campaign need not stop.")},
			Do: []string{"hongbao work", "kubectl scale --replicas=3 deploy/hongbao-work"}}}
}

// differs finds an audit that found differences of this campaign, or some of which this server does not know whose they
// are.
func differs(f *facts) *judgement {
	if f.Audit.Unread || f.Audit.At.IsZero() || f.Audit.Agrees || f.differs == 0 {
		return nil
	}
	say := model.Say("The audit at %s found %d differences of this campaign.", f.at(f.Audit.At), f.differs)
	if f.differs < 0 {
		say = model.Say("The audit at %s found %d differences. This server does not know whether they are of this campaign.",
			f.at(f.Audit.At), f.Audit.Differences)
	}
	return &judgement{"audit", levelBad, say, nil, step{Runbook: "audit_differs", Title: model.Say("Look at the differences"), Text: []model.Sentence{
		model.Say("Decide about the quarantine and the dead letters, then audit again.")}, Do: []string{"hongbao audit --campaign " + f.ID}}}
}

// sinkFault finds a sink that does not deliver what waits.
func sinkFault(f *facts) *judgement {
	for i := range f.sinks {
		s := &f.sinks[i]
		lag, known := f.lag(s.Sink)
		if !known || lag.Grants == 0 && s.State != deliveries.SinkDown {
			continue
		}
		j := judgement{Code: "sink_" + string(s.State), Level: levelWait, Next: step{Runbook: sinkRunbooks[s.State],
			Title: model.Say("Look at the deliveries"), Action: access.ReadSinks, Path: "/sinks", Label: model.Say("Deliveries")}}
		switch s.State {
		case deliveries.SinkPaused:
			if s.Pause.By == "" { // a link does not show it
				j.Say = model.Say("%s: paused. %d grants wait.", deliveryTo(s.Sink), lag.Grants)
				break
			}
			j.Say = model.Say("%s: paused by %s. %d grants wait.", deliveryTo(s.Sink), s.Pause.By, lag.Grants)
		case deliveries.SinkDown:
			j.Say = model.Say("%s: down. %d grants wait, the oldest %s.", deliveryTo(s.Sink), lag.Grants, lag.Oldest)
		case deliveries.SinkNoWorker:
			j.Say = model.Say("%s: no worker runs. %d grants wait, the oldest %s.", deliveryTo(s.Sink), lag.Grants, lag.Oldest)
		case deliveries.SinkBehind:
			j.Say = model.Say("%s: %d grants behind, the oldest %s.", deliveryTo(s.Sink), lag.Grants, lag.Oldest)
		case deliveries.SinkWorking, deliveries.SinkUnread:
			continue
		}
		j.More = []model.Sentence{model.Say("They wait on this campaign's shards, perhaps for other campaigns, too.")}
		if s.Sink != configs.SinkBalance && f.Unpaid() == 0 {
			j.More = append(j.More, model.Say("All winners so far are paid. Only the programs that read from this sink wait."))
		}
		return &j
	}
	return nil
}

// deliveryTo names the deliveries to a sink.
func deliveryTo(sink string) model.Sentence {
	switch sink {
	case configs.SinkBalance:
		return model.Say("Payments")
	case configs.SinkKafka:
		return model.Say("Announcements to Kafka")
	}
	return model.Say("Sink %s", sink)
}
