// Package cloudevent has the fixed words of a record in the topic: its headers and what they hold. See docs/topic.md.
package cloudevent

// The types of events: what ce_type holds.
const (
	// TypeGrant is the ce_type of a grant.
	TypeGrant = "hongbao.grant.v1"
	// TypeFence is the ce_type of a fence record: it carries nothing for subscribers.
	TypeFence = "hongbao.fence.v1"
)

// What the other fixed headers hold.
const (
	// SourcePrefix and the deployment's id make ce_source.
	SourcePrefix = "/hongbao/"
	SpecVersion  = "1.0"
	ContentType  = "application/json"
	// TimeLayout of ce_time and of the value's time: RFC 3339, UTC, milliseconds.
	TimeLayout = "2006-01-02T15:04:05.000Z"
)

// The headers' names. Those of CloudEvents come first, by its Kafka binding's binary mode; HeaderTrace is there if the
// grab had a trace.
const (
	HeaderSpecVersion = "ce_specversion"
	HeaderID          = "ce_id"
	HeaderSource      = "ce_source"
	HeaderType        = "ce_type"
	HeaderTime        = "ce_time"
	HeaderTrace       = "ce_traceparent"
	HeaderContentType = "content-type"
	HeaderShard       = "shard"
	HeaderSeq         = "seq"
	HeaderEpoch       = "epoch"
	// HeaderFounding tells a deployment from another one with the same id; absent where it was founded without a ledger.
	HeaderFounding = "founding"
	// HeaderParent has the value of HeaderTrace under the name that OpenTelemetry's instrumentation of Kafka clients reads.
	HeaderParent = "traceparent"
)
