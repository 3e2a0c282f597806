package publish

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/topic"
)

// page returns docs/asyncapi.yaml as JSON values.
func page(t *testing.T) map[string]any {
	t.Helper()
	raw, err := os.ReadFile("../../../docs/asyncapi.yaml")
	require.NoError(t, err)
	var tree any
	require.NoError(t, yaml.Unmarshal(raw, &tree))
	text, err := json.Marshal(tree)
	require.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return v.(map[string]any)
}

// at returns the object at a path such as "components/messages/grant".
func at(t *testing.T, v any, path string) map[string]any {
	t.Helper()
	for part := range strings.SplitSeq(path, "/") {
		m, ok := v.(map[string]any)
		require.True(t, ok, path)
		require.Contains(t, m, part, path)
		v = m[part]
	}
	m, ok := v.(map[string]any)
	require.True(t, ok, path)
	return m
}

// docs/asyncapi.yaml is valid by AsyncAPI's own JSON schema (github.com/asyncapi/spec-json-schemas, schemas/3.0.0.json,
// Apache-2.0).
func TestAsyncAPIFollowsTheSpecification(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/asyncapi-3.0.0.json.gz")
	require.NoError(t, err)
	defer f.Close()
	plain, err := gzip.NewReader(f)
	require.NoError(t, err)
	spec, err := jsonschema.UnmarshalJSON(plain)
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("asyncapi.json", spec))
	schema, err := c.Compile("asyncapi.json")
	require.NoError(t, err)
	good := page(t)
	require.NoError(t, schema.Validate(good))
	at(t, good, "operations/readGrants")["action"] = "listen"
	require.Error(t, schema.Validate(good), "the check can fail")
}

// Every $ref in docs/asyncapi.yaml has a target.
func TestAsyncAPIReferences(t *testing.T) {
	t.Parallel()
	root := page(t)
	found := 0
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				found++
				if path, inside := strings.CutPrefix(ref, "#/"); inside {
					at(t, root, path)
				} else {
					require.FileExists(t, "../../../docs/"+ref)
				}
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	walk(root)
	require.GreaterOrEqual(t, found, 10)
	require.Equal(t, "./schema/hongbao.grant.v1.json", at(t, root, "components/messages/grant/payload/schema")["$ref"])
	require.Equal(t, cloudevent.TypeGrant, at(t, root, "components/messages/grant")["name"])
	require.Equal(t, cloudevent.TypeFence, at(t, root, "components/messages/fence")["name"])
}

// part compiles a schema that docs/asyncapi.yaml contains.
func part(t *testing.T, path string) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	v := at(t, page(t), path)
	require.NoError(t, c.AddResource((&url.URL{Path: path}).String(), v))
	s, err := c.Compile(path)
	require.NoError(t, err)
	return s
}

func headerValues(headers []kafka.Header) map[string]any {
	m := map[string]any{}
	for _, h := range headers {
		m[h.Key] = string(h.Value)
	}
	return m
}

// Encoded messages have exactly the headers that docs/asyncapi.yaml defines.
func TestMessagesFollowAsyncAPI(t *testing.T) {
	t.Parallel()
	headers, key := part(t, "components/messages/grant/headers"), part(t, "components/messages/grant/bindings/kafka/key")
	named := at(t, page(t), "components/messages/grant/headers/properties")
	rapid.Check(t, func(rt *rapid.T) {
		g := drawGrant(rt)
		if g.Trace != "" { // the schema requires a valid traceparent, and so does a grab
			g.Trace = rapid.StringMatching(`00-[0-9a-f]{31}1-[0-9a-f]{15}1-[0-9a-f]{2}`).Draw(rt, "traceparent")
		}
		list, _ := messageOf(t, &g)
		require.NoError(rt, headers.Validate(headerValues(list)))
		require.NoError(rt, key.Validate(g.User))
		for _, h := range list {
			require.Contains(rt, named, h.Key)
		}
	})
	g := hongbao.Grant{Shard: 1, Seq: 5, Epoch: 2, Campaign: "c", Packet: 1, Amount: 3, User: "u",
		Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Time: decided}
	b := newBatch("/hongbao/d1")
	b.addFounding("aaaa")
	b.start(numbers{}, 1)
	require.True(t, b.add(&g, 1<<20))
	list := firstRecord(t, b.finish()).headers
	require.Len(t, list, len(named), "with a trace and a founding, a message has all defined headers")
	require.ElementsMatch(t, slices.Collect(maps.Keys(named)), slices.Collect(maps.Keys(headerValues(list))))
	for _, h := range list {
		without := headerValues(list)
		delete(without, h.Key)
		if h.Key == "ce_traceparent" || h.Key == "traceparent" || h.Key == "founding" {
			require.NoError(t, headers.Validate(without))
		} else {
			require.Error(t, headers.Validate(without), "%s is required", h.Key)
		}
		without[h.Key] = "no such value"
		require.Error(t, headers.Validate(without), h.Key)
	}
}

func TestFencesFollowAsyncAPI(t *testing.T) {
	t.Parallel()
	b := newBatch("/hongbao/d1")
	b.addFounding("aaaa")
	n := numbers{producer: 7, epoch: 3}
	b.start(n, 1)
	b.addFence(n, decided.UnixMilli())
	r := firstRecord(t, b.finish())
	require.NoError(t, part(t, "components/messages/fence/headers").Validate(headerValues(r.headers)))
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.value))
	require.NoError(t, err)
	require.NoError(t, part(t, "components/messages/fence/payload").Validate(value))
	require.Len(t, r.headers, len(at(t, page(t), "components/messages/fence/headers/properties")))
}

// DecodeMessage can read the example messages in docs/asyncapi.yaml.
func TestAsyncAPIExamples(t *testing.T) {
	t.Parallel()
	list, ok := at(t, page(t), "components/messages/grant")["examples"].([]any)
	require.True(t, ok)
	var got []hongbao.Grant
	for _, example := range list {
		var headers []kafka.Header
		for name, value := range at(t, example, "headers") {
			headers = append(headers, kafka.Header{Key: name, Value: []byte(value.(string))})
		}
		payload := at(t, example, "payload")
		value, err := json.Marshal(payload)
		require.NoError(t, err)
		e, err := topic.DecodeMessage(headers, []byte(payload["user"].(string)), value)
		require.NoError(t, err)
		got = append(got, e.Grant)
	}
	require.Len(t, got, 2)
	require.Equal(t, "0-52", got[0].EventID())
	require.EqualValues(t, 888, got[0].Amount)
	require.Equal(t, "SPRING-4711-KXQA", got[1].Code)
}
