package judge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// An accepted loss excuses what a place lacks, of its campaign only. It never excuses two users of one packet, other
// facts, a limit that is exceeded, or wrong sums.
func TestAcceptedLoss(t *testing.T) {
	t.Parallel()
	win := Win{Campaign: "rain", User: "ann", Request: "r1", Packet: 1, Amount: 10}
	same := grant{Campaign: "rain", User: "ann", Request: "r1", Packet: 1, Amount: 10}
	other := same
	other.Amount = 11
	again := win
	again.User = "bob"
	for _, c := range []struct {
		name                 string
		told                 []Win
		ledger, topic, redis []grant
		lost                 bool
		wrong, missing       int
	}{
		{"everywhere", []Win{win}, []grant{same}, []grant{same}, []grant{same}, false, 0, 0},
		{"nowhere", []Win{win}, nil, nil, nil, false, 0, 3},
		{"nowhere, after an accepted loss", []Win{win}, nil, nil, nil, true, 0, 0},
		{"two users, after an accepted loss", []Win{win, again}, []grant{same}, []grant{same}, []grant{same}, true, 1, 0},
		{"another amount, after an accepted loss", []Win{win}, []grant{same}, []grant{other}, nil, true, 3, 0},
		{"twice in the topic", []Win{win}, []grant{same}, []grant{same, same}, []grant{same}, false, 1, 0},
		{"twice in the topic, after an accepted loss", []Win{win}, []grant{same}, []grant{same, same}, nil, true, 0, 0},
		{"other facts twice in the topic, after an accepted loss", []Win{win}, []grant{same}, []grant{same, other}, nil, true, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newVerdict(&Facts{Told: c.told, Campaigns: []Campaign{{ID: "rain", Packets: 1, Total: 10, Hold: 1, Lost: c.lost}}})
			v.held["rain"] = &held{}
			v.once("the ledger", c.ledger, v.ledger)
			v.once(theTopic, c.topic, v.topic)
			v.once("Redis", c.redis, v.redis)
			v.toldRules()
			v.storeRules()
			require.Len(t, v.Wrong, c.wrong, "%v", v.Wrong)
			require.Len(t, unique(v.Missing), c.missing, "%v", v.Missing)
		})
	}
	v := newVerdict(&Facts{Campaigns: []Campaign{{ID: "rain", Hold: 1, Lost: true}}})
	second := same
	second.Packet = 2
	v.limit(v.facts.Campaigns[0], []grant{same, second})
	require.Len(t, v.Wrong, 1, "a limit is exceeded")
}

func unique(lines []string) map[string]bool {
	set := map[string]bool{}
	for _, l := range lines {
		set[l] = true
	}
	return set
}
