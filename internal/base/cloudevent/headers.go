// Package cloudevent defines the events about grants: the headers of records in the topic, and the JSON of a grant. See
// docs/topic.md and docs/webhooks.md.
package cloudevent

// The values of the header ce_type.
const (
	// TypeGrant is the type of a grant.
	TypeGrant = "hongbao.grant.v1"
	// TypeFence is the type of a fence record, which has no data for subscribers.
	TypeFence = "hongbao.fence.v1"
)

// Values of other headers.
const (
	// SourcePrefix, followed by the deployment's id, is the value of ce_source.
	SourcePrefix = "/hongbao/"
	SpecVersion  = "1.0"
	ContentType  = "application/json"
	// TimeLayout is the layout of ce_time and of the time in the record's value: RFC 3339, UTC, milliseconds.
	TimeLayout = "2006-01-02T15:04:05.000Z"
)

// The names of the headers. The ce_ headers follow the binary mode of CloudEvents' Kafka protocol binding. HeaderTrace
// exists only if the grab had a trace.
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
	// HeaderFounding distinguishes two deployments that have the same id. It is absent in a deployment that was
	// initialized without a ledger.
	HeaderFounding = "founding"
	// HeaderParent repeats HeaderTrace under the name that OpenTelemetry's instrumentation of Kafka clients reads.
	HeaderParent = "traceparent"
)
