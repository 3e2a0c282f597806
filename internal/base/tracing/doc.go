// Package tracing shows the path of one grab as a trace: from the request through Redis to the sinks. It decides which
// grabs are traced, creates their spans, and sends these to a collector by OTLP over HTTP.
//
// The context of a traced grab travels as its traceparent: in hongbao.Grab, in the entry, in the record's header. So
// the stages have no code for tracing: spans are created around them. No span has the id of a user, a request id, a
// code, an amount or the text of an error.
package tracing
