package serve

import (
	"encoding/json"
	"strconv"

	"github.com/hongbao-project/hongbao/internal/base/answers"
)

// writeGrab encodes an answer like internal/base/answers, but five times as fast. Most answers under load are answers
// to grabs.
func writeGrab(a *GrabAnswer) []byte {
	to := make([]byte, 0, 256+192*len(a.Receipts))
	to = appendText(append(to, `{"outcome":`...), a.Outcome)
	if a.Currency != "" {
		to = appendText(append(to, `,"currency":`...), a.Currency)
	}
	for i := range a.Receipts {
		before := `,"receipts":[`
		if i > 0 {
			before = ","
		}
		to = appendReceipt(append(to, before...), &a.Receipts[i])
	}
	if len(a.Receipts) > 0 {
		to = append(to, ']')
	}
	if l := a.Limit; l != nil {
		to = appendText(append(to, `,"limit":{"by":`...), l.By)
		to = appendText(append(to, `,"per":`...), l.Per)
		to = strconv.AppendInt(append(to, `,"max":`...), l.Max, 10)
		if !l.Resets.IsZero() {
			to = answers.AppendTime(append(to, `,"resets":`...), l.Resets)
		}
		to = append(to, '}')
	}
	if !a.Starts.IsZero() {
		to = answers.AppendTime(append(to, `,"starts":`...), a.Starts)
	}
	to = answers.AppendTime(append(to, `,"time":`...), a.Time)
	if a.RequestID != "" {
		to = appendText(append(to, `,"request_id":`...), a.RequestID)
	}
	return append(to, '}')
}

func appendReceipt(to []byte, r *Receipt) []byte {
	to = strconv.AppendInt(append(to, `{"packet":`...), r.Packet, 10)
	to = strconv.AppendInt(append(to, `,"amount":`...), r.Amount, 10)
	to = appendText(append(to, `,"event":`...), r.Event)
	to = answers.AppendTime(append(to, `,"time":`...), r.Time)
	if r.RequestID != "" {
		to = appendText(append(to, `,"request_id":`...), r.RequestID)
	}
	if r.Code != "" {
		to = appendText(append(to, `,"code":`...), r.Code)
	}
	return append(to, '}')
}

// appendText appends text as a JSON string. If the text needs escapes, encoding/json encodes it.
func appendText(to []byte, text string) []byte {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c > '~', c == '"', c == '\\', c == '<', c == '>', c == '&':
			quoted, _ := json.Marshal(text) //nolint:errchkjson // a string can always be encoded
			return append(to, quoted...)
		}
	}
	return append(append(append(to, '"'), text...), '"')
}
