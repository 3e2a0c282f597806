package console

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

const (
	// glanceAge is how old the badges and the alarm of a page may be, and glanceTime the time limit of each read for them.
	glanceAge, glanceTime = 3 * time.Second, time.Second
)

// glance is what every page shows of the whole deployment. Fields that could not be read are empty.
type glance struct {
	Dead        int64 // dead letters of all sinks
	Quarantined int   // grants that wait for a decision; if More is set, there are others
	More        bool
	// Worst is the worst state of a sink; empty if all work or can't be read.
	Worst deliveries.SinkState
	// Alarm is nil unless the whole deployment has a fault.
	Alarm *alarm
	sinks []deliveries.SinkStatus // nil if they could not be read
}

// alarm is a fault of the whole deployment.
type alarm struct {
	code string
	Say  model.Sentence
	// Runbook is the code of its runbook.
	Runbook string
	since   time.Time
}

// glancer reads the glance at most once in glanceAge, for all pages. It is safe for concurrent use.
type glancer struct {
	source  Source
	reading singleflight.Group

	mu   sync.Mutex
	at   time.Time
	last glance
}

// look returns the glance, which many requests share. It waits for the servers up to twice glanceTime.
func (g *glancer) look() glance {
	before, young := g.known()
	if young {
		return before
	}
	now, _, _ := g.reading.Do("", func() (any, error) {
		before, young := g.known()
		if young { // another request has just read it
			return before, nil
		}
		now := g.read(before.Alarm)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.last, g.at = now, time.Now()
		return now, nil
	})
	return now.(glance) //nolint:forcetypeassert // the function above returns it
}

// known returns the last glance, and whether it is young enough.
func (g *glancer) known() (last glance, young bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last, time.Since(g.at) < glanceAge
}

// read reads the glance. before is the last alarm.
func (g *glancer) read(before *alarm) glance {
	asked, cancel := context.WithTimeout(context.Background(), glanceTime)
	sinks, unread := g.source.Sinks(asked)
	cancel()
	asked, cancel = context.WithTimeout(context.Background(), glanceTime)
	now := glance{sinks: sinks}
	waiting, noLedger := g.source.Quarantine(asked, 0, false)
	cancel()
	for i := range sinks {
		now.Dead += sinks[i].Dead
		now.Worst = cmp.Or(worse(now.Worst, sinks[i].State), now.Worst)
	}
	now.Quarantined, now.More = len(waiting), len(waiting) == model.PageLen
	if now.Alarm = alarmOf(sinks, unread, noLedger); now.Alarm != nil {
		now.Alarm.since = time.Now()
		if before != nil && before.code == now.Alarm.code {
			now.Alarm.since = before.since
		}
	}
	return now
}

// badStates are the states of a sink that need a look, the worst first.
var badStates = []deliveries.SinkState{deliveries.SinkNoWorker, deliveries.SinkDown, deliveries.SinkUnread, deliveries.SinkPaused,
	deliveries.SinkBehind}

// worse returns the worse of two states.
func worse(a, b deliveries.SinkState) deliveries.SinkState {
	i, j := slices.Index(badStates, a), slices.Index(badStates, b)
	if i < 0 || j >= 0 && j < i {
		i = j
	}
	if i < 0 {
		return ""
	}
	return badStates[i]
}

// alarmOf returns the worst fault of the deployment, or nil.
func alarmOf(sinks []deliveries.SinkStatus, unread, noLedger error) *alarm {
	switch {
	case unread != nil:
		return &alarm{code: "redis", Runbook: "redis_down", Say: model.Say("Redis can't be read: users get “try again”, and payments wait.")}
	case noLedger != nil:
		return &alarm{code: "ledger", Runbook: "sink_down", Say: model.Say("The ledger can't be read. Grabs go on without it, payments wait for it.")}
	}
	for i := range sinks {
		if s := &sinks[i]; s.Sink == configs.SinkBalance && s.State == deliveries.SinkNoWorker && s.Waiting > 0 {
			return &alarm{code: "no_worker", Runbook: "no_worker", Say: model.Say("No worker runs for payments: %d winners wait for their money.", s.Waiting)}
		}
	}
	return nil
}

// Since returns since when this server sees the fault.
func (a *alarm) Since() time.Time { return a.since }
