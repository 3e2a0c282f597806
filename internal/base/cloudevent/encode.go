package cloudevent

import (
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao"
)

// StructuredType is the content type of an event in structured mode: one JSON object with the attributes and the data.
const StructuredType = "application/cloudevents+json"

// AppendTime appends a time in TimeLayout.
func AppendTime(b []byte, at time.Time) []byte { return at.UTC().AppendFormat(b, TimeLayout) }

// AppendEvent appends the event of a grant in structured mode. The caller has checked the grant, its time and the
// source.
func AppendEvent(b []byte, source, id string, g *hongbao.Grant) []byte {
	var room [len(TimeLayout)]byte
	when := AppendTime(room[:0], g.Time)
	b = append(b, `{"specversion":"`+SpecVersion+`","type":"`+TypeGrant+`","source":`...)
	b = appendString(b, source)
	b = append(b, `,"id":`...)
	b = appendString(b, id)
	b = append(b, `,"time":"`...)
	b = append(b, when...)
	b = append(b, `","datacontenttype":"`+ContentType+`"`...)
	if g.Trace != "" {
		b = append(b, `,"traceparent":`...)
		b = appendString(b, g.Trace)
	}
	b = append(b, `,"data":`...)
	return append(AppendGrant(b, g, when), '}')
}

// AppendGrant appends the JSON of a grant: the value of its record in the topic, and the data of its event. The
// parameter when is the grant's time in TimeLayout. The caller has checked the grant and its time.
func AppendGrant(b []byte, g *hongbao.Grant, when []byte) []byte {
	b = append(b, `{"campaign":"`...)
	b = append(b, g.Campaign...) // a-z, 0-9, - and _: nothing to escape
	b = append(b, `","packet":`...)
	b = strconv.AppendInt(b, g.Packet, 10)
	b = append(b, `,"user":`...)
	b = appendString(b, g.User)
	b = append(b, `,"amount":`...)
	b = strconv.AppendInt(b, int64(g.Amount), 10)
	if g.Currency != "" {
		b = append(b, `,"currency":`...)
		b = appendString(b, g.Currency)
	}
	b = append(b, `,"shard":`...)
	b = strconv.AppendInt(b, int64(g.Shard), 10)
	b = append(b, `,"seq":`...)
	b = strconv.AppendInt(b, g.Seq, 10)
	b = append(b, `,"epoch":`...)
	b = strconv.AppendInt(b, g.Epoch, 10)
	b = append(b, `,"time":"`...)
	b = append(b, when...)
	b = append(b, '"')
	if g.RequestID != "" {
		b = append(b, `,"request_id":`...)
		b = appendString(b, g.RequestID)
	}
	if g.Code != "" {
		b = append(b, `,"code":`...)
		b = appendString(b, g.Code)
	}
	return append(b, '}')
}

// appendString appends s as a JSON string. Ids and codes are printable ASCII, so only the quote and the backslash need
// escaping.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}
