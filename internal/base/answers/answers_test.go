package answers

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type Inner struct {
	At   time.Time `json:"at"`
	Name string    `json:"name,omitempty"`
	Deep string    `json:"deep"`
}

type whole struct {
	Inner
	*Other
	Deep    string               `json:"deep"` // hides Deep of Inner
	Zero    time.Time            `json:"zero,omitzero"`
	Pointer *time.Time           `json:"pointer"`
	Absent  *time.Time           `json:"absent,omitempty"`
	List    []Inner              `json:"list"`
	Nil     []Inner              `json:"nil"`
	None    []time.Time          `json:"none,omitempty"`
	Map     map[string]time.Time `json:"map"`
	Any     any                  `json:"any"`
	Raw     json.RawMessage      `json:"raw"`
	Text    string               `json:"<text>"`
	Hidden  time.Time            `json:"-"`
	Again   *whole               `json:"again,omitempty"`
	own     time.Time
}

type Other struct {
	Until time.Time `json:"until"`
}

var zoned = time.Date(2026, 11, 24, 16, 0, 0, 123_456_789, time.FixedZone("CET", 3600))

func values() []any {
	full := whole{Inner: Inner{At: zoned, Name: "n"}, Other: &Other{zoned}, Deep: "d", Pointer: &zoned,
		List: []Inner{{At: zoned}}, Map: map[string]time.Time{"b": zoned, "a": zoned}, Any: map[string]any{"x": zoned, "y": nil},
		Raw: json.RawMessage(`{"b": 1, "a": "<"}`), Text: "<&>\u2028", own: zoned}
	full.Again = &whole{Raw: json.RawMessage("1")}
	return []any{full, &full, []whole{full}, nil, (*whole)(nil), 1, "x", zoned, &zoned, []any{zoned, 1, nil},
		map[int]Inner{2: {At: zoned}}, struct{ A, B int }{1, 2}, [1]time.Time{zoned}}
}

var anyTime = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*"`)

func TestMarshalDiffersInTimesOnly(t *testing.T) {
	t.Parallel()
	for _, v := range values() {
		want, err := json.Marshal(v)
		require.NoError(t, err)
		have, err := Marshal(v)
		require.NoError(t, err)
		require.Equal(t, anyTime.ReplaceAllString(string(want), `"T"`), anyTime.ReplaceAllString(string(have), `"T"`))
		for _, at := range anyTime.FindAllString(string(have), -1) {
			require.Contains(t, []string{`"2026-11-24T15:00:00.123Z"`, `"0001-01-01T00:00:00.000Z"`}, at)
		}
	}
}

func TestTimesHaveFixedMilliseconds(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 24, 15, 0, 0, 0, time.UTC)
	text, err := Marshal(map[string]any{"at": at})
	require.NoError(t, err)
	require.JSONEq(t, `{"at": "2026-11-24T15:00:00.000Z"}`, string(text))
	var b strings.Builder
	require.NoError(t, Write(&b, []time.Time{at}, "  "))
	require.Equal(t, "[\n  \"2026-11-24T15:00:00.000Z\"\n]\n", b.String())
}
