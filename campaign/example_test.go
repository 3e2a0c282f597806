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
