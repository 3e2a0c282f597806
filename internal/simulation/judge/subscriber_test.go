package judge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each grant of the topic has one effect with its facts, and nothing else has one. An accepted loss excuses nothing.
func TestEffects(t *testing.T) {
	t.Parallel()
	first := grant{Campaign: "rain", User: "ann", Request: "r1", Packet: 1, Amount: 10, Seq: 7}
	otherUser, otherPacket, again := first, first, first
	otherUser.User, otherPacket.Packet, again.Seq = "bob", 2, 9
	for _, c := range []struct {
		name           string
		topic, effects []grant
		wrong, missing int
	}{
		{"one effect", []grant{first}, []grant{first}, 0, 0},
		{"a copy in the topic, one effect", []grant{first, again}, []grant{again}, 0, 0},
		{"no effect", []grant{first}, nil, 0, 1},
		{"two effects", []grant{first}, []grant{first, first}, 1, 0},
		{"another user", []grant{first}, []grant{otherUser}, 1, 0},
		{"not published", []grant{first}, []grant{first, otherPacket}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := newVerdict(&Facts{Campaigns: []Campaign{{ID: "rain", Lost: true}}})
			v.once(theTopic, c.topic, v.topic)
			v.effectRules(c.effects)
			require.Len(t, v.Wrong, c.wrong, "%v", v.Wrong)
			require.Len(t, v.Missing, c.missing, "%v", v.Missing)
		})
	}
}
