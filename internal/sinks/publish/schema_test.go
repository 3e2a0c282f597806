package publish

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
)

func TestMessagesFollowTheSchema(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.NewCompiler().Compile("../../../docs/schema/hongbao.grant.v1.json")
	require.NoError(t, err)
	check := func(t require.TestingT, value []byte) error {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
		require.NoError(t, err)
		return schema.Validate(v)
	}
	rapid.Check(t, func(t *rapid.T) {
		g := drawGrant(t)
		m := newMessage("/hongbao/d1")
		m.encode(&g)
		require.NoError(t, check(t, m.value))
	})
	g := hongbao.Grant{Shard: 1, Seq: 5, Epoch: 2, Campaign: "c", Packet: 1, Amount: 3, User: "u", Time: decided}
	_, value := messageOf(t, &g)
	for from, to := range map[string]string{
		`"amount":3,`: "", `"amount":3`: `"amount":"3"`, `"seq":5`: `"seq":0`, `"user":"u"`: `"user":"a b"`, `.123Z`: "Z", `"campaign":"c"`: `"campaign":"C"`,
	} {
		require.Error(t, check(t, bytes.Replace(value, []byte(from), []byte(to), 1)), from)
	}
}

// The table of docs/topic.md has each field of the schema, and says which ones are optional.
func TestTopicPageHasEachField(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../../docs/schema/hongbao.grant.v1.json")
	require.NoError(t, err)
	var schema struct {
		Properties map[string]json.RawMessage
		Required   []string
	}
	require.NoError(t, json.Unmarshal(raw, &schema))
	text, err := os.ReadFile("../../../docs/topic.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(text), "\n| field | type |")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n\n")
	var fields, required []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([^|]+) \\|").FindAllStringSubmatch(table, -1) {
		fields = append(fields, row[1])
		if !strings.Contains(row[2], "optional") {
			required = append(required, row[1])
		}
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(schema.Properties)), fields)
	require.ElementsMatch(t, schema.Required, required)
}
