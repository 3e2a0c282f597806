package judge

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A campaign is refunded once, and grants and refund are the whole campaign.
func TestRefundOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		money money
		wrong int
	}{
		{"open", money{state: "funded"}, 0},
		{"refunded", money{state: "refunded", refunded: 90, refunds: 1, moved: 90}, 0},
		{"twice", money{state: "refunded", refunded: 90, refunds: 2, moved: 180}, 1},
		{"too much", money{state: "refunded", refunded: 100, refunds: 1, moved: 100}, 1},
		{"without a transfer", money{state: "refunded", refunded: 90}, 1},
		{"not noted", money{state: "funded", refunds: 1, moved: 90}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.money.packets, c.money.funded, c.money.granted, c.money.grants = 10, 100, 10, 1
			facts := Campaign{ID: "rain", Packets: 10, Total: 100, Hold: 1}
			v := newVerdict(&Facts{Campaigns: []Campaign{facts}})
			v.held["rain"] = &held{}
			v.sums(facts, &c.money, []grant{{Campaign: "rain", User: "ann", Packet: 1, Amount: 10}})
			require.Len(t, v.Wrong, c.wrong, "%v", v.Wrong)
		})
	}
}
