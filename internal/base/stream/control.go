package stream

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
)

// ControlKind is the kind of thing that a Control is about.
type ControlKind string

// The kinds of Control.
const (
	// ControlCampaign pauses a campaign: its Value is a state, paused or open.
	ControlCampaign ControlKind = "campaign"
	// ControlSink pauses a sink for all workers: its Value is 1, or 0 for a sink that runs.
	ControlSink ControlKind = "sink"
	// ControlRate bounds the rate of a sink: its Value is grants per second, 0 for no bound, "" for the knob of each
	// worker.
	ControlRate ControlKind = "rate"
	// ControlSinkCampaign pauses one campaign for one sink. Its Value is 1 or 0, as for ControlSink.
	ControlSinkCampaign ControlKind = "sink_campaign"
)

// Control is a decision that pauses, resumes or limits something. Redis has it first, then the ledger.
type Control struct {
	Kind           ControlKind
	Sink, Campaign string // "" where the kind has none
	Value          string
	Decision
	At time.Time // zero if nothing has ever changed
	// Rev orders the decisions about one thing: the higher one counts. It is ms since 1970, by the clock of Redis.
	Rev int64
}

// Name returns the name that Redis has for the thing that the decision is about.
func (c *Control) Name() string { return string(c.Kind) + " " + c.Sink + " " + c.Campaign }

// ParseControl reads a decision as lua/control.lua writes it.
func ParseControl(name, text string) (c Control, err error) {
	about := strings.Split(name, " ")
	head, words, _ := strings.Cut(text, "\n")
	fields := strings.SplitN(head, " ", 4)
	if len(about) != 3 || len(fields) != 4 {
		return c, hongbao.Errorf(hongbao.ClassBroken, "decision %.80q in Redis is %.80q: it was changed by hand", name, text)
	}
	var numbers [3]int64 // rev, at, and the length of by
	for i := range numbers {
		if numbers[i], err = strconv.ParseInt(fields[i], 10, 64); err != nil || numbers[i] < 0 {
			return c, hongbao.Errorf(hongbao.ClassBroken, "decision %.80q in Redis: %.80q is not a number", name, fields[i])
		}
	}
	if numbers[2] > int64(len(words)) {
		return c, hongbao.Errorf(hongbao.ClassBroken, "decision %.80q in Redis is cut off: %.80q", name, text)
	}
	c = Control{Kind: ControlKind(about[0]), Sink: about[1], Campaign: about[2], Value: fields[3],
		Decision: Decision{By: words[:numbers[2]], Why: words[numbers[2]:]}, Rev: numbers[0]}
	if numbers[1] > 0 {
		c.At = time.UnixMilli(numbers[1])
	}
	return c, nil
}

// String returns the name of the thing that the decision is about, for a person.
func (c *Control) String() string {
	switch c.Kind {
	case ControlCampaign:
		return "campaign " + c.Campaign
	case ControlSinkCampaign:
		return fmt.Sprintf("campaign %s for sink %s", c.Campaign, c.Sink)
	case ControlRate:
		return "the rate of sink " + c.Sink
	case ControlSink:
	}
	return "sink " + c.Sink
}
