// Package answers writes the JSON of responses and of --json. It works like encoding/json, but writes each time.Time in
// UTC with exactly three decimals: 2026-11-24T15:00:00.000Z. Fields stay plain time.Time values, so no new field can
// miss this format.
//
// Do not use it for stored data or for records of the topic: their format must not change.
package answers

import (
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// TimeLayout is the layout of each time in a response. Convert the time to UTC first.
const TimeLayout = "2006-01-02T15:04:05.000Z"

// AppendTime appends a time as a JSON string.
func AppendTime(to []byte, t time.Time) []byte {
	return append(t.UTC().AppendFormat(append(to, '"'), TimeLayout), '"')
}

// options are the options of encoding/json, except for times.
var options = json.JoinOptions(jsonv1.DefaultOptionsV1(), json.WithMarshalers(json.MarshalToFunc(
	func(to *jsontext.Encoder, t time.Time) error { return to.WriteValue(AppendTime(nil, t)) })))

// Marshal writes v.
func Marshal(v any) ([]byte, error) { return json.Marshal(v, options) }

// Write writes v and a line feed. A non-empty indent spreads the JSON over indented lines; otherwise it is one line.
func Write(to io.Writer, v any, indent string) error {
	all := options
	if indent != "" {
		all = json.JoinOptions(options, jsontext.WithIndent(indent))
	}
	text, err := json.Marshal(v, all)
	if err != nil {
		return err
	}
	_, err = to.Write(append(text, '\n'))
	return err
}
