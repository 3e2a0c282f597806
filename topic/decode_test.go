package topic_test

import (
	"bytes"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/topic"
)

const value = `{"campaign":"spring","packet":4711,"user":"u1","amount":888,"shard":3,"seq":52,"epoch":1,"time":"2026-11-21T08:00:00.123Z","request_id":"r1"}`

func headers(change func(h map[string]string)) (list []kafka.Header) {
	h := map[string]string{
		cloudevent.HeaderSpecVersion: "1.0", cloudevent.HeaderSource: "/hongbao/shop",
		cloudevent.HeaderType: "hongbao.grant.v1", cloudevent.HeaderContentType: "application/json",
		cloudevent.HeaderID: "3-52", cloudevent.HeaderTime: "2026-11-21T08:00:00.123Z", cloudevent.HeaderShard: "3",
		cloudevent.HeaderSeq: "52", cloudevent.HeaderEpoch: "1",
	}
	if change != nil {
		change(h)
	}
	for name, v := range h {
		list = append(list, kafka.Header{Key: name, Value: []byte(v)})
	}
	return list
}

func TestDecode(t *testing.T) {
	t.Parallel()
	e, err := topic.DecodeMessage(headers(func(h map[string]string) {
		h["x-new"], h[cloudevent.HeaderTrace] = "?",
			"00-ab-cd-01"
	}), []byte("u1"), []byte(value))
	require.NoError(t, err)
	require.Equal(t, "/hongbao/shop", e.Source)
	require.Equal(t, "3-52", e.Grant.EventID())
	require.Equal(t, "00-ab-cd-01", e.Grant.Trace)
	require.EqualValues(t, 888, e.Grant.Amount)
	require.Empty(t, e.Grant.Code)
	require.Empty(t, e.Grant.Currency)
	require.Equal(t, "2026-11-21T08:00:00.123Z", e.Grant.Time.Format(cloudevent.TimeLayout))
}

// Old records may have a currency that is no longer in use.
func TestDecodeCurrency(t *testing.T) {
	t.Parallel()
	e, err := topic.DecodeMessage(headers(nil), []byte("u1"), bytes.Replace([]byte(value), []byte(`888,`), []byte(`888,"currency":"DEM",`), 1))
	require.NoError(t, err)
	require.Equal(t, "DEM", e.Grant.Currency)
}

func TestDecodeCode(t *testing.T) {
	t.Parallel()
	e, err := topic.DecodeMessage(headers(nil), []byte("u1"), bytes.Replace([]byte(value), []byte(`"r1"}`), []byte(`"r1","code":"SPRING-\"1\\"}`), 1))
	require.NoError(t, err)
	require.Equal(t, `SPRING-"1\`, e.Grant.Code)
}

// A record whose headers do not say that it is a grant gives ErrForeign. A record that says so and contradicts itself
// gives a Permanent error, so that no reader ignores it.
func TestDecodeDistinguishesForeignFromMalformed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{cloudevent.HeaderSpecVersion: "0.3", cloudevent.HeaderSource: "/shop",
		cloudevent.HeaderType: cloudevent.TypeFence} {
		_, err := topic.DecodeMessage(headers(func(h map[string]string) { h[name] = want }), []byte("u1"), []byte(value))
		require.ErrorIs(t, err, topic.ErrForeign, name)
		_, err = topic.DecodeMessage(headers(func(h map[string]string) { delete(h, name) }), []byte("u1"), []byte(value))
		require.ErrorIs(t, err, topic.ErrForeign, name)
	}
	malformed := func(list []kafka.Header, key, body string) {
		t.Helper()
		_, err := topic.DecodeMessage(list, []byte(key), []byte(body))
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), "%v", err)
		require.NotErrorIs(t, err, topic.ErrForeign)
	}
	for name, wrong := range map[string]string{
		cloudevent.HeaderID: "3-53", cloudevent.HeaderTime: "2026-11-21T08:00:00.124Z", cloudevent.HeaderShard: "4",
		cloudevent.HeaderSeq: "052", cloudevent.HeaderEpoch: "2",
		cloudevent.HeaderContentType: "text/plain",
	} {
		malformed(headers(func(h map[string]string) { h[name] = wrong }), "u1", value)
		malformed(headers(func(h map[string]string) { delete(h, name) }), "u1", value)
		malformed(append(headers(nil), kafka.Header{Key: name, Value: []byte("twice")}), "u1", value)
	}
	malformed(headers(nil), "u2", value)
	malformed(headers(nil), "u1", "")
	for from, to := range map[string]string{
		`"amount":888`: `"amount":-1`, `"amount":888,`: "", `888,"shard"`: `888,"currency":"cny","shard"`, `"shard":3,`: "", `"packet":4711`: `"packet":0`, `"campaign":"spring"`: `"campaign":"Spring"`,
		`"amount":88`: `"amount":"88"`, `"seq":52`: `"seq":9007199254740993`, `"r1"`: `"a b"`, `"r1"}`: `"r1","code":"a b"}`,
	} {
		require.Contains(t, value, from)
		malformed(headers(nil), "u1", string(bytes.Replace([]byte(value), []byte(from), []byte(to), 1)))
	}
}
