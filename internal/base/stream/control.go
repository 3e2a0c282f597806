package stream

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
)

// ControlKind says what a Control pauses, resumes or limits.
type ControlKind string

// The kinds of Control.
const (
	// ControlCampaign pauses or resumes a campaign. Its Value is the campaign's state, paused or open.
	ControlCampaign ControlKind = "campaign"
	// ControlSink pauses or resumes a sink for all workers. Its Value is 1 for a paused sink and 0 for a running one.
	ControlSink ControlKind = "sink"
	// ControlRate limits the rate of a sink. Its Value is the number of grants per second, or 0 for no limit. With an
	// empty Value, each worker uses its own knob.
	ControlRate ControlKind = "rate"
	// ControlSinkCampaign pauses or resumes one campaign for one sink. Its Value is 1 or 0, as for ControlSink.
	ControlSinkCampaign ControlKind = "sink_campaign"
)

// Control is an operator's decision that pauses, resumes or limits something. It is stored in Redis first and then
// copied to the ledger.
type Control struct {
	Kind           ControlKind
	Sink, Campaign string // empty if the kind does not need it
	Value          string
	Decision
	At time.Time // zero if there was never a decision
	// Rev orders the decisions about the same thing: the highest Rev is valid. It is the Unix time in ms by the clock
	// of Redis.
	Rev int64
}

// Name returns the hash field under which Redis stores the decision.
func (c *Control) Name() string { return string(c.Kind) + " " + c.Sink + " " + c.Campaign }

// ParseControl parses a decision in the format of lua/control.lua.
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

// String describes, for people, what the decision is about.
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
