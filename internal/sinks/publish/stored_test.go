package publish

import (
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/topic"
)

const goodStored = "3 none 4001 0 3 12000 1763715000123 88211 grants 1-50@1763-0..1763-4,52-52@1764-0..1764-0"

func TestStoredText(t *testing.T) {
	t.Parallel()
	s := stored{numbers: numbers{4001, 0, 12000}, partition: 3, ms: 1763715000123, noted: 88211, topic: "grants"}
	for seq := int64(1); seq <= 52; seq++ {
		if seq == 51 {
			continue
		}
		entry := "1763-0"
		if seq > 40 {
			entry = "1763-4"
		}
		if seq > 50 {
			entry = "1764-0"
		}
		s.extend(&hongbao.Grant{Seq: seq, EntryID: entry})
	}
	require.Equal(t, goodStored, s.String())
	require.EqualValues(t, 51, s.count())
	back, err := parseStored(goodStored)
	require.NoError(t, err)
	require.Equal(t, s, back)

	s.codec = kafka.Zstd
	require.Equal(t, strings.Replace(goodStored, "none", "zstd", 1), s.String())
	back, err = parseStored(s.String())
	require.NoError(t, err)
	require.Equal(t, s, back)
	for _, codec := range []string{"", "4", "brotli", "uncompressed", "ZSTD"} {
		_, err := parseStored(strings.Replace(goodStored, "none", codec, 1))
		require.Error(t, err, codec)
	}
	_, err = parseStored("3")
	require.Error(t, err)
	for _, version := range []string{"1", "2", "4", ""} {
		_, err = parseStored(version + goodStored[1:])
		require.ErrorContains(t, err, "version")
	}
	_, err = parseStored("1" + strings.TrimPrefix(goodStored, "3 none"))
	require.ErrorContains(t, err, `its version is "1", this build reads 3`)
}

func TestStoredIsReadStrictly(t *testing.T) {
	t.Parallel()
	for from, to := range map[string]string{
		"3 none":             "2 none",
		"none 4001":          "4001",
		"4001":               "04001",
		"4001 0":             "-1 0",
		" 0 3":               " 32767 3",
		" 3 ":                " 10000 ",
		"12000":              "2147483648",
		"88211":              "+88211",
		"grants":             "gr/ants",
		"grants ":            "grants  ",
		"1-50":               "50-1",
		"1-50@":              "0-50@",
		"1-50@1763-0":        "1-50@",
		"1763-4,":            "1763-4,,",
		"..1764-0":           "..1764-0,",
		",52-52":             ",51-52",
		"52-52@":             "40-52@",
		"..1763-4":           ".1763-4",
		"@1763-0":            "@1763 0",
		"1764-0..1764-0":     "1764-0..1764-0 x",
		"1-50@1763-0..":      "1-50@1763-0...",
		"1764-0..1764-0\x00": "",
	} {
		text := strings.Replace(goodStored, from, to, 1)
		if text == goodStored {
			text += "\x00"
		}
		_, err := parseStored(text)
		require.Error(t, err, "%q", text)
	}
	_, err := parseStored("")
	require.Error(t, err)
	_, err = parseStored(strings.Repeat("3", maxStored+1))
	require.Error(t, err)
}

func TestStoredRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := stored{
			numbers: numbers{rapid.Int64Min(0).Draw(t, "id"), int16(rapid.IntRange(0, maxEpoch).Draw(t, "epoch")),
				rapid.Int32Min(0).Draw(t, "seq")},
			codec:     kafka.Compression(rapid.IntRange(0, 4).Draw(t, "codec")),
			partition: rapid.IntRange(0, maxPartitions-1).Draw(t, "partition"), ms: rapid.Int64Range(0, 1<<53-1).Draw(t, "ms"),
			noted: rapid.Int64Min(0).Draw(t, "noted"), topic: rapid.StringMatching(`[a-zA-Z0-9_][a-zA-Z0-9._-]{0,39}`).Draw(t, "topic"),
		}
		seq := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			seq += rapid.Int64Range(1, 3).Draw(t, "step")
			s.extend(&hongbao.Grant{Seq: seq, EntryID: rapid.StringMatching(`[0-9]{1,13}-[0-9]{1,3}`).Draw(t, "entry")})
		}
		back, err := parseStored(s.String())
		require.NoError(t, err)
		require.Equal(t, s, back)
	})
}

func FuzzParseStored(f *testing.F) {
	f.Add(goodStored)
	f.Add("3 none 0 0 0 0 0 0 t 1-1@0-1..0-1")
	f.Add("3 lz4 0 0 0 0 0 0 t 1-1@0-1..0-1")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseStored(text)
		if err == nil {
			require.Equal(t, text, s.String())
		}
	})
}

func FuzzDecodeMessage(f *testing.F) {
	g := hongbao.Grant{Shard: 1, Seq: 5, Epoch: 2, Campaign: "c", Packet: 1, Amount: 3, User: `u"\`, RequestID: "r", Trace: "00-a-b-01", Time: decided}
	headers, value := messageOf(f, &g)
	text := ""
	for _, h := range headers {
		text += h.Key + "=" + string(h.Value) + "\n"
	}
	f.Add(text, g.User, value)
	f.Add("", "", []byte(nil))
	f.Fuzz(func(t *testing.T, text, key string, value []byte) {
		var headers []kgoHeader
		for line := range strings.Lines(text) {
			k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			headers = append(headers, kgoHeader{Key: k, Value: []byte(v)})
		}
		e, err := topic.DecodeMessage(headers, []byte(key), value)
		if err != nil {
			return
		}
		require.NoError(t, admit(withEntry(e.Grant)), "a decoded grant can be published")
		h, v := messageOf(t, &e.Grant)
		again, err := topic.DecodeMessage(h, []byte(e.Grant.User), v)
		require.NoError(t, err)
		require.Equal(t, e.Grant, again.Grant)
	})
}

func withEntry(g hongbao.Grant) *hongbao.Grant {
	g.EntryID = "1-1"
	return &g
}
