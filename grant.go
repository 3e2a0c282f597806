package hongbao

import (
	"context"
	"strconv"
	"time"
)

// Grant is the immutable fact that a user got a packet with an amount. Shard and Seq identify it in a deployment
// forever; so do Campaign and Packet.
type Grant struct {
	Shard int   `json:"shard" doc:"The shard's number."`
	Seq   int64 `json:"seq" doc:"Number of the grant's event on the shard. Shard and seq together name the event; after an accepted loss two grants can have the same. The key of a win is campaign and packet."`
	Epoch int64 `json:"epoch" doc:"The shard's epoch when the grant was decided. The epoch rises each time the shard is opened."`
	// EntryID is the id of the grant's stream entry; empty if the grant does not come from the stream.
	EntryID  string `json:"entry_id,omitempty" doc:"Id of the grant's entry in the shard's stream. Absent if the grant does not come from the stream."`
	Campaign string `json:"campaign" doc:"The campaign's id."`
	Packet   int64  `json:"packet" doc:"Number of the packet in the campaign."`
	Amount   Amount `json:"amount" doc:"Amount of the packet, in minor units."`
	User     string `json:"user" doc:"Id of the user who got the packet."`
	// RequestID and Trace are empty if the grab had none.
	RequestID string `json:"request_id,omitempty" doc:"Request id of the grab. Absent if the grab had none."`
	Trace     string `json:"trace,omitempty" doc:"W3C traceparent of the grab. Absent if the grab had none."`
	// Time is when the grab was decided, by the clock of Redis, in whole milliseconds.
	Time time.Time `json:"time" doc:"Time when the grab was granted."`
	// Currency is the currency of Amount. It is empty for a coupon without a value. Code is the coupon code; never log
	// it. Codes are in the topic and the ledger, but not in the stream.
	Currency string `json:"currency,omitempty" doc:"Currency of the amount, ISO 4217; absent for a coupon without a value."`
	Code     string `json:"code,omitempty" doc:"The coupon's code, which is secret. The shard's stream does not have it."`
}

// EventID returns the id of the grant's event, "<shard>-<seq>". It is unique in the deployment.
func (g *Grant) EventID() string {
	b := make([]byte, 0, 24)
	b = strconv.AppendInt(b, int64(g.Shard), 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, g.Seq, 10)
	return string(b)
}

// Handler handles the grants of a consumer group. The settlement and the publisher are Handlers, and middleware wraps
// one.
//
// Handle returns nil if all grants are done. Otherwise errs[i] is the result of grants[i], and nil means done. A slice
// of another length counts as ClassBroken for all grants. All grants of a call are from one shard. A grant may be
// delivered more than once, so handlers must be idempotent. When ctx ends, the lease on the grants is lost: Handle must
// write nothing more and return soon.
type Handler interface {
	Handle(ctx context.Context, grants []Grant) []error
}

// HandlerFunc is a function that implements Handler. Middleware returns such functions (consumer.Config.Middleware).
type HandlerFunc func(ctx context.Context, grants []Grant) []error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, grants []Grant) []error { return f(ctx, grants) }
