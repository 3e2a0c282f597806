package hongbao

import (
	"context"
	"strconv"
	"time"
)

// Grant is the immutable fact "this packet, this user, this amount". (Shard, Seq) names it in a deployment for ever;
// (Campaign, Packet) is unique as well.
type Grant struct {
	Shard int   `json:"shard"`
	Seq   int64 `json:"seq"`
	Epoch int64 `json:"epoch"`
	// EntryID is the id of the stream entry that brought it; empty if it did not come from the stream.
	EntryID  string `json:"entry_id,omitempty"`
	Campaign string `json:"campaign"`
	Packet   int64  `json:"packet"`
	Amount   Amount `json:"amount"`
	User     string `json:"user"`
	// RequestID and Trace are empty if the grab had none.
	RequestID string `json:"request_id,omitempty"`
	Trace     string `json:"trace,omitempty"`
	// Time is when it was decided, Redis time, whole milliseconds.
	Time time.Time `json:"time"`
	// Currency is what Amount is in; empty for a coupon without a value. Code is the coupon's code: never log it. The
	// stream carries neither: the topic and the ledger do.
	Currency string `json:"currency,omitempty"`
	Code     string `json:"code,omitempty"`
}

// EventID names the grant's event in a deployment: "<shard>-<seq>".
func (g *Grant) EventID() string {
	b := make([]byte, 0, 24)
	b = strconv.AppendInt(b, int64(g.Shard), 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, g.Seq, 10)
	return string(b)
}

// Handler is what a consumer group brings its grants to: the settler, the publisher, a wrapper around either.
//
// Handle returns nil when all grants are done; else errs[i] belongs to grants[i], and nil there means done. A grant may
// come more than once, and the handler must make that harmless. All grants of a call are of one shard. When ctx ends,
// the lease on the grants is lost: Handle must write nothing more and return soon.
type Handler interface {
	Handle(ctx context.Context, grants []Grant) []error
}

// HandlerFunc is a function that is a Handler, as a middleware needs one (consumer.Config.Middleware).
type HandlerFunc func(ctx context.Context, grants []Grant) []error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, grants []Grant) []error { return f(ctx, grants) }
