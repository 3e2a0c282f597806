package hongbao

import (
	"context"
	"strconv"
	"time"
)

// Grant is the immutable fact "this packet, this user, this amount". (Shard, Seq) identifies it in a deployment
// permanently; (Campaign, Packet) is unique as well.
type Grant struct {
	Shard int   `json:"shard" doc:"The shard's number."`
	Seq   int64 `json:"seq" doc:"Its number on the shard: shard and seq name it permanently."`
	Epoch int64 `json:"epoch" doc:"The shard's epoch at the grant: it rises when the shard is opened again."`
	// EntryID is the id of the grant's stream entry; empty if the grant did not come from the stream.
	EntryID  string `json:"entry_id,omitempty" doc:"Id of the stream entry that brought it; absent if none did."`
	Campaign string `json:"campaign" doc:"The campaign's id."`
	Packet   int64  `json:"packet" doc:"Number of the packet in the campaign."`
	Amount   Amount `json:"amount" doc:"In minor units."`
	User     string `json:"user" doc:"Who got the packet."`
	// RequestID and Trace are empty if the grab had none.
	RequestID string `json:"request_id,omitempty" doc:"The request id of the grab; absent if it had none."`
	Trace     string `json:"trace,omitempty" doc:"The trace of the grab; absent if it had none."`
	// Time is the Redis time of the decision, in whole milliseconds.
	Time time.Time `json:"time" doc:"When it was granted."`
	// Currency is the currency of Amount; empty for a coupon without a value, and for a grant that an earlier build
	// wrote to the stream. Code is the coupon's code: never log it. The stream does not carry it: the topic and the
	// ledger do.
	Currency string `json:"currency,omitempty" doc:"ISO 4217; absent for a coupon without a value."`
	Code     string `json:"code,omitempty" doc:"The coupon's code, a secret; the stream does not carry it."`
}

// EventID returns the id of the grant's event in a deployment: "<shard>-<seq>".
func (g *Grant) EventID() string {
	b := make([]byte, 0, 24)
	b = strconv.AppendInt(b, int64(g.Shard), 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, g.Seq, 10)
	return string(b)
}

// Handler handles the grants of a consumer group: the settler, the publisher, or a wrapper around either.
//
// Handle returns nil when all grants are done; else errs[i] belongs to grants[i], and nil there means done. A grant
// may come more than once, and the handler must make that harmless. All grants of a call are of one shard. When ctx
// ends, the lease on the grants is lost: Handle must write nothing more and return soon.
type Handler interface {
	Handle(ctx context.Context, grants []Grant) []error
}

// HandlerFunc is a function that implements Handler, as a middleware needs one (consumer.Config.Middleware).
type HandlerFunc func(ctx context.Context, grants []Grant) []error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, grants []Grant) []error { return f(ctx, grants) }
