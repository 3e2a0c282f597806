// Package tracing traces the path of a grab from the request through Redis to the sinks. It decides which grabs are
// traced, creates their spans, and sends the spans to a collector by OTLP over HTTP.
//
// A traced grab carries its traceparent in hongbao.Grab, in the stream entry and in the header of the Kafka record. The
// stages need no tracing code: this package wraps their calls. No span contains a user id, a request id, a coupon code,
// an amount or the text of an error.
package tracing
