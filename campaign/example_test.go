package campaign_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
)

func ExampleRead() {
	_, err := campaign.Read(strings.NewReader(`
id: spring-2027
name: Spring rain
kind: red_packet
currency: CNY
total: 12.50
packets: 5
split: {mode: even}
window: {from: 2027-02-06T20:00:00, to: 2027-02-06T20:10:00+08:00}
sponsor: acme
`))
	var spec *campaign.SpecError
	if errors.As(err, &spec) {
		for _, p := range spec.Problems {
			fmt.Println(p.Path, p.Code)
		}
	}
	fmt.Println(hongbao.ClassOf(err))
	// Output:
	// total amount_not_integer_minor_units
	// window.from time_malformed
	// permanent
}

func ExampleNewPlan() {
	c, err := campaign.Read(strings.NewReader(`
id: spring-2027
name: Spring rain
kind: red_packet
currency: CNY
total: 1000
packets: 10
split: {mode: random, min: 1, max: 1000}
window: {from: 2027-02-06T20:00:00+08:00, to: 2027-02-06T20:10:00+08:00}
sponsor: acme
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	// A real program uses campaign.NewSeed() and keeps the seed secret until the close.
	seed, err := campaign.ParseSeed("0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20")
	if err != nil {
		fmt.Println(err)
		return
	}
	hash := campaign.Commit(c, seed) // publish this hash before the start
	plan, err := campaign.NewPlan(c, seed)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(plan.Amounts)
	fmt.Println(campaign.Verify(c, seed, hash))
	// Output:
	// [35 21 233 166 176 174 74 23 87 11]
	// <nil>
}
