package flatjson

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	o, err := Parse([]byte(` {"a":"x","n":12,"b":true,"z":null,"l":[{"q":"1"},{}],"u":"\u00e9\ud83d\ude00é\""} `), "l", 2)
	require.NoError(t, err)
	require.Equal(t, Object{"a": "x", "u": "é😀é\"", "n": json.Number("12"), "b": true, "z": nil,
		"l": []Object{{"q": "1"}, {}}}, o)
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"l":`, 10_000) + "1" + strings.Repeat("}", 10_000)
	for text, want := range map[string]error{
		"": ErrEmpty, " \n": ErrEmpty, "null": ErrSyntax, "[]": ErrSyntax, `"x"`: ErrSyntax, "7": ErrSyntax, "{": ErrSyntax,
		`{"a":1}x`: ErrSyntax, `{"a":1}{"a":1}`: ErrSyntax, `{"a":1,}`: ErrSyntax, `{"a":NaN}`: ErrSyntax, `{"a":1_0}`: ErrSyntax,
		`{a:1}`: ErrSyntax, "<html>": ErrSyntax, "{\"a\":\"\xff\"}": ErrSyntax,
		`{"a":1,"a":1}`: ErrDuplicate, `{"a":1,"\u0061":1}`: ErrDuplicate, `{"l":[{"a":1,"a":2}]}`: ErrDuplicate,
		`{"a":{}}`: ErrNested, `{"a":[]}`: ErrNested, `{"l":{}}`: ErrNested, `{"l":[1]}`: ErrNested, `{"l":[[]]}`: ErrNested,
		`{"l":[{"l":[]}]}`: ErrNested, `{"l":[{},{},{}]}`: ErrTooMany, deep: ErrNested,
	} {
		_, err := Parse([]byte(text), "l", 2)
		require.ErrorIs(t, err, want, "%.40s", text)
	}
	_, err := Parse([]byte(`{"secret":[1]}`), "", 0)
	require.ErrorIs(t, err, ErrNested)
	require.NotContains(t, err.Error(), "secret", "the error does not quote the text")
	_, err = Parse([]byte(`{"l":[{"a":1},{"b":1,"b":2}]}`), "l", 2)
	require.EqualError(t, err, "a name comes twice (byte 22)")
}

func TestInteger(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"1": nil, "9007199254740991": nil, "9007199254740992": ErrRange, "9223372036854775808": ErrRange,
		"1000000000000000000000000000000": ErrRange, "0": ErrRange, "-0": ErrRange, "-1": ErrRange, "1.5": ErrNotInteger,
		"1.0": ErrNotInteger,
		"1e3": ErrNotInteger, `"100"`: ErrNotInteger, "true": ErrNotInteger, "null": ErrNotInteger,
	} {
		o, err := Parse([]byte(`{"amount":`+text+`}`), "", 0)
		require.NoError(t, err)
		_, err = o.Integer("amount", 1<<53-1)
		require.Equal(t, want, err, text)
	}
	_, err := Object{}.Integer("amount", 1)
	require.Equal(t, ErrNotInteger, err)
	s, ok := Object{"a": "x"}.Text("a")
	require.True(t, ok)
	require.Equal(t, "x", s)
	_, ok = Object{"a": true}.Text("a")
	require.False(t, ok)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"l":[{"a":1}],"b":"x"}`))
	f.Add([]byte(`{"a":1e400}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := Parse(data, "l", 10)
		if err != nil {
			return
		}
		var m map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(data, &m))
		require.Len(t, m, len(o))
	})
}
