package cloudevent

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

var grant = hongbao.Grant{Shard: 3, Seq: 52, Epoch: 2, Campaign: "spring", Packet: 4711, Amount: 888, User: `u"1\`,
	RequestID: `r"`, Trace: trace, Time: time.Date(2026, 11, 21, 16, 0, 0, 123e6, time.FixedZone("", 8*3600)),
	Currency: "CNY", Code: `C\1`}

const data = `{"campaign":"spring","packet":4711,"user":"u\"1\\","amount":888,"currency":"CNY","shard":3,"seq":52,` +
	`"epoch":2,"time":"2026-11-21T08:00:00.123Z","request_id":"r\"","code":"C\\1"}`

// The event has exactly these bytes. Its data is a value by the schema of the topic.
func TestEvent(t *testing.T) {
	t.Parallel()
	require.NoError(t, CheckGrant(&grant))
	text := AppendEvent(nil, "/hongbao/prod", "spring-4711", &grant)
	want := []byte(`{"specversion":"1.0","type":"hongbao.grant.v1","source":"/hongbao/prod","id":"spring-4711",` +
		`"time":"2026-11-21T08:00:00.123Z","datacontenttype":"application/json","traceparent":"` + trace + `","data":` + data + `}`)
	require.Equal(t, want, text, "%s", text)
	var e struct{ Data any }
	require.NoError(t, json.Unmarshal(text, &e))
	schema, err := jsonschema.NewCompiler().Compile("../../../docs/schema/hongbao.grant.v1.json")
	require.NoError(t, err)
	require.NoError(t, schema.Validate(e.Data))
}

// What a grant does not have is left out.
func TestShortEvent(t *testing.T) {
	t.Parallel()
	g := hongbao.Grant{Seq: 1, Epoch: 1, Campaign: "a", Packet: 1, User: "u", Time: time.UnixMilli(0)}
	want := []byte(`{"specversion":"1.0","type":"hongbao.grant.v1","source":"/hongbao/prod","id":"a-1",` +
		`"time":"1970-01-01T00:00:00.000Z","datacontenttype":"application/json","data":{"campaign":"a","packet":1,"user":"u",` +
		`"amount":0,"shard":0,"seq":1,"epoch":1,"time":"1970-01-01T00:00:00.000Z"}}`)
	require.Equal(t, want, AppendEvent(nil, "/hongbao/prod", "a-1", &g))
}

func TestCheckTime(t *testing.T) {
	t.Parallel()
	for year, good := range map[int]bool{1969: false, 1970: true, 9999: true, 10000: false} {
		require.Equal(t, good, CheckTime(time.Date(year, 6, 1, 0, 0, 0, 0, time.UTC)) == nil, year)
	}
}

// campaigns knows "spring", which has codes except for packet 9, and "autumn" without codes.
type campaigns struct{ fails string }

func (c campaigns) Terms(_ context.Context, _ int, id string) (Facts, bool, error) {
	if c.fails == "terms" {
		return Facts{}, false, errors.New("down")
	}
	return Facts{Currency: "CNY", Codes: id == "spring"}, id != "winter", nil
}

func (c campaigns) Codes(_ context.Context, _ int, _ string, packets []int64) ([]string, error) {
	if c.fails == "codes" {
		return nil, errors.New("down")
	}
	codes := make([]string, len(packets))
	for i, p := range packets {
		if p != 9 {
			codes[i] = "C"
		}
	}
	return codes, nil
}

func TestComplete(t *testing.T) {
	t.Parallel()
	in := []hongbao.Grant{{Campaign: "spring", Packet: 1}, {Campaign: "winter", Packet: 2}, {Campaign: "spring", Packet: 9},
		{Campaign: "autumn", Packet: 3, Currency: "EUR"}, {Campaign: "spring", Packet: 4, Code: "own"}}
	out, without, err := Complete(t.Context(), campaigns{}, in)
	require.NoError(t, err)
	require.Equal(t, []hongbao.Grant{{Campaign: "spring", Packet: 1, Currency: "CNY", Code: "C"}, {Campaign: "winter", Packet: 2},
		{Campaign: "spring", Packet: 9, Currency: "CNY"}, {Campaign: "autumn", Packet: 3, Currency: "EUR"},
		{Campaign: "spring", Packet: 4, Currency: "CNY", Code: "own"}}, out)
	require.Empty(t, in[0].Currency, "the caller's grants do not change")
	require.Len(t, without, 2)
	for _, i := range []int{1, 2} {
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(without[i]))
	}
	for _, fails := range []string{"terms", "codes"} {
		_, _, err := Complete(t.Context(), campaigns{fails}, in)
		require.True(t, hongbao.IsOutage(err), fails)
	}
}
