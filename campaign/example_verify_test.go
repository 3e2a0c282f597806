package campaign_test

import (
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
)

// The operator publishes a hash before the start, and a Disclosure after the refund. Anyone recomputes the draw from
// both. A changed specification does not verify, and neither does a grant with a changed amount.
func ExampleDisclosure_Verify() {
	c := campaign.Complete(hongbao.Campaign{
		ID: "spring-2027", Name: "Spring rain", Kind: hongbao.KindRedPacket, Currency: "CNY", Total: 1000, Packets: 10,
		Split: hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: 1000}, Sponsor: "acme",
		From: time.Date(2027, 2, 6, 12, 0, 0, 0, time.UTC), To: time.Date(2027, 2, 6, 12, 10, 0, 0, time.UTC),
	})
	// An operator takes campaign.NewSeed(), and keeps the seed secret until the refund.
	seed, err := campaign.ParseSeed("0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20")
	check(err)
	published := campaign.Commit(c, seed) // before the start
	d := campaign.Disclosure{             // after the refund; `hongbao campaign reveal` writes it, ReadDisclosure reads it
		Format: campaign.DisclosureFormat, Campaign: c.ID, Canonical: string(campaign.Canonical(c)), Hash: published,
		Seed: seed.Hex(),
	}

	_, plan, err := d.Verify(published)
	check(err)
	fmt.Println("the draw:", plan.Amounts)

	for _, amount := range []int{233, 133} { // lines of `hongbao tail`
		line := fmt.Sprintf(`{"event":"0-1","campaign":"spring-2027","packet":3,"user":"ann","amount":%d}`, amount)
		_, err = campaign.CheckGrants(strings.NewReader(line), c.ID, plan)
		fmt.Println("packet 3 with", amount, "fen:", err)
	}

	d.Canonical = strings.Replace(d.Canonical, `"total":1000`, `"total":900`, 1)
	_, _, err = d.Verify(published)
	fmt.Println("900 fen instead of 1000:", hongbao.ClassOf(err))
	// Output:
	// the draw: [35 21 233 166 176 174 74 23 87 11]
	// packet 3 with 233 fen: <nil>
	// packet 3 with 133 fen: the grants differ from the plan:
	// line 1: packet 3 was given with amount 133, planned is 233
	// 900 fen instead of 1000: conflict
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
