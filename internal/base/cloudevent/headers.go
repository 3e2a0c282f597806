// Package cloudevent has the fixed words of a record in the topic: its headers and their values. See docs/topic.md.
package cloudevent

// The types of events: the values of ce_type.
const (
	// TypeGrant is the ce_type of a grant.
	TypeGrant = "hongbao.grant.v1"
	// TypeFence is the ce_type of a fence record, which has no data for subscribers.
	TypeFence = "hongbao.fence.v1"
)

// Values of the other fixed headers.
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
	// HeaderFounding distinguishes a deployment from another one with the same id; absent if it was founded without a
	// ledger.
	HeaderFounding = "founding"
	// HeaderParent has the value of HeaderTrace under the name that OpenTelemetry's instrumentation of Kafka clients reads.
	HeaderParent = "traceparent"
)
