package model

import (
	"time"

	"github.com/hongbao-project/hongbao/internal/base/optional"
)

// Span is something that changed or disturbed a campaign, and how long it lasted.
type Span struct {
	Kind SpanKind  `json:"kind" enum:"load,top_up,paused,close,cancel,refund,reveal,frozen,redis_unread,ledger_unread,sink_down" doc:"What happened. 'paused' and the actions are by the journal. Of the others this server knows: the campaign was frozen, Redis or the ledger could not be read, or a worker could not deliver to a sink."`
	From time.Time `json:"from" doc:"When it began."`
	// To equals From for an action.
	To   *time.Time    `json:"to" nullable:"true" doc:"When it ended: for an action the same time as 'from'. Null while it lasts."`
	Sink optional.Text `json:"sink,omitempty" doc:"The sink of 'sink_down'. Absent for other kinds."`
	By   optional.Text `json:"by,omitempty" doc:"Who did it, as in the journal. Absent if nobody did it."`
	Why  optional.Text `json:"why,omitempty" doc:"The reason that they gave. Absent if there is none."`
}

// SpanKind is what happened in a span.
type SpanKind string

// The kinds of spans.
const (
	SpanLoad         SpanKind = "load"
	SpanTopUp        SpanKind = "top_up"
	SpanPaused       SpanKind = "paused"
	SpanClose        SpanKind = "close"
	SpanCancel       SpanKind = "cancel"
	SpanRefund       SpanKind = "refund"
	SpanReveal       SpanKind = "reveal"
	SpanFrozen       SpanKind = "frozen"
	SpanRedisUnread  SpanKind = "redis_unread"
	SpanLedgerUnread SpanKind = "ledger_unread"
	SpanSinkDown     SpanKind = "sink_down"
)

// Lasts reports whether the span has a length, or has not ended.
func (s *Span) Lasts() bool { return s.To == nil || s.To.After(s.From) }

// Through returns the end of the span, or now if it lasts.
func (s *Span) Through(now time.Time) time.Time {
	if s.To == nil {
		return now
	}
	return *s.To
}

// History is the course of a campaign.
type History struct {
	Campaign string   `json:"campaign" doc:"The campaign's id."`
	Samples  []Sample `json:"samples" nullable:"false" doc:"The campaign's counters in each second of the last ten minutes in which its window was open, as this server read them, the oldest first."`
	Spans    []Span   `json:"spans" nullable:"false" doc:"What changed or disturbed the campaign, the oldest first."`
	Recorded bool     `json:"recorded" doc:"Whether the journal could be read. If not, 'spans' has its actions as this server read them last, or not at all."`
}
