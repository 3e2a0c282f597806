package publish

import (
	"bytes"
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
