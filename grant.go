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
func (g *Grant) EventID() string { return eventID(g.Shard, g.Seq) }

func eventID(shard int, seq int64) string {
	var room [32]byte
	b := append(strconv.AppendInt(room[:0], int64(shard), 10), '-')
	return string(strconv.AppendInt(b, seq, 10))
}

// Batch is grants of one shard that are delivered in one call.
type Batch struct {
	Shard int
	// Epoch is the shard's epoch when the grants were read from Redis, 1 or more. The epoch rises each time the shard is
	// opened. A grant of an earlier epoch may be in the batch, because Redis still had it in this one. A batch of an
	// earlier epoch than the shard's present one may have grants that Redis has lost since. A replay and a requeue of dead
	// letters read the epoch when they begin on the shard.
	Epoch int64
	// Grants must not be changed. They belong to the caller, who may deliver them again.
	Grants []Grant
}

// Handler handles the grants of a consumer group. The settlement and the publisher are Handlers, and middleware wraps
// one.
//
// Handle returns nil if all grants are done. Otherwise errs[i] is the result of b.Grants[i], and nil means done. A
// slice of another length counts as ClassBroken for all grants. A grant may be delivered more than once, so handlers
// must be idempotent. When ctx ends, the lease on the grants is lost: Handle must write nothing more and return soon.
type Handler interface {
	Handle(ctx context.Context, b Batch) []error
}

// HandlerFunc is a function that implements Handler. Middleware returns such functions (consumer.Config.Middleware).
type HandlerFunc func(ctx context.Context, b Batch) []error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, b Batch) []error { return f(ctx, b) }
