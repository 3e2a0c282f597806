package campaign

import (
	"testing"
	"time"

	"github.com/hongbao-project/hongbao"
)

// whole is a valid specification with every key. Tests break one key at a time.
const whole = `
id: spring-2027
name: Spring rain 春
kind: red_packet
currency: CNY
total: 1000
packets: 10
split: {mode: random, min: 1, max: 500}
window: {from: 2027-02-06T20:00:00+08:00, to: 2027-02-06T20:10:00.500+08:00}
time_zone: Asia/Shanghai
limits:
  - {by: user, per: campaign, max: 2}
  - {by: device, per: day, max: 3}
sponsor: acme
durability: fsync
`

func wholeCampaign() hongbao.Campaign {
	return hongbao.Campaign{
		ID: "spring-2027", Name: "Spring rain 春", Kind: hongbao.KindRedPacket, Currency: "CNY", Total: 1000, Packets: 10,
		Split:    hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: 500},
		From:     time.Date(2027, 2, 6, 12, 0, 0, 0, time.UTC),
		To:       time.Date(2027, 2, 6, 12, 10, 0, 500_000_000, time.UTC),
		TimeZone: "Asia/Shanghai",
		Limits: []hongbao.Limit{
			{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 2}, {By: "device", Per: hongbao.PerDay, Max: 3},
		},
		Sponsor: "acme", Durability: hongbao.DurabilityFsync,
	}
}

func evenCampaign(total hongbao.Amount, packets int64) hongbao.Campaign {
	c := wholeCampaign()
	c.Total, c.Packets, c.Split = total, packets, hongbao.Split{Mode: hongbao.SplitEven}
	return c
}

func randomCampaign(total hongbao.Amount, packets int64, low, high hongbao.Amount) hongbao.Campaign {
	c := wholeCampaign()
	c.Total, c.Packets = total, packets
	c.Split = hongbao.Split{Mode: hongbao.SplitRandom, Min: low, Max: high}
	return c
}

func tiersCampaign(tiers ...hongbao.Tier) hongbao.Campaign {
	c := wholeCampaign()
	c.Total, c.Packets, c.Split = 0, 0, hongbao.Split{Mode: hongbao.SplitTiers, Tiers: tiers}
	for _, t := range tiers {
		c.Packets += t.Packets
		c.Total += t.Amount * hongbao.Amount(t.Packets)
	}
	return c
}

// testSeed returns the seed with the bytes 1, 2, 3 ... 32.
func testSeed(t testing.TB) Seed {
	t.Helper()
	s, err := ParseSeed("0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
