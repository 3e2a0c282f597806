package hongbao

import (
	"fmt"
	"time"
)

// Amount is money in minor units (cents, fen) of the campaign's currency.
type Amount int64

// MaxAmount is the largest amount that Hongbao accepts. Lua numbers are exact up to this integer.
const MaxAmount Amount = 1<<53 - 1

// Limits of a campaign.
const (
	MaxPackets  = 10_000_000
	MaxTiers    = 1_000
	MaxLimits   = 16
	MaxUserHold = 100 // packets per user and campaign
	MaxWindow   = 400 * 24 * time.Hour
	// MaxCampaignShards limits Campaign.Shards.
	MaxCampaignShards = 64
)

// Kind is what a campaign gives out: red packets or coupons.
type Kind string

// The kinds of campaign.
const (
	KindRedPacket Kind = "red_packet"
	KindCoupon    Kind = "coupon"
)

// SplitMode is the way in which the total is split into packets.
type SplitMode string

// The split modes. SplitEven makes equal packets; the first total%packets packets get one unit more. SplitRandom gives
// each packet Min plus a random extra of up to twice the mean of what is left, but never more than Max
// (docs/campaigns.md has the exact rule). SplitTiers lists how many packets have which amount.
const (
	SplitEven   SplitMode = "even"
	SplitRandom SplitMode = "random"
	SplitTiers  SplitMode = "tiers"
)

// Split describes how the total is split into packets. Min and Max are only for SplitRandom, and Tiers only for
// SplitTiers.
type Split struct {
	Mode  SplitMode `json:"mode" doc:"How the total is split: 'even', 'random' or 'tiers'."`
	Min   Amount    `json:"min,omitempty" doc:"Smallest amount of a packet, in minor units. Only for the mode 'random'."`
	Max   Amount    `json:"max,omitempty" doc:"Largest amount of a packet, in minor units. Only for the mode 'random'."`
	Tiers []Tier    `json:"tiers,omitempty" doc:"Amounts with their numbers of packets. Only for the mode 'tiers'."`
}

// Tier is a number of packets that have the same amount.
type Tier struct {
	Amount  Amount `json:"amount" doc:"Amount of each packet of this tier, in minor units."`
	Packets int64  `json:"packets" doc:"Number of packets with this amount."`
}

// ByUser is the value of Limit.By for a limit per user. Any other value is the name of a fact.
const ByUser = "user"

// Period is the time for which a limit counts packets.
type Period string

// The periods. Days and hours begin by the wall clock in the campaign's time zone.
const (
	PerCampaign Period = "campaign"
	PerDay      Period = "day"
	PerHour     Period = "hour"
)

// Limit is the maximum number of packets that one user, or one value of a fact, gets in a period.
type Limit struct {
	By  string `json:"by" doc:"What the limit counts by: 'user', or the name of a fact of the grab."`
	Per Period `json:"per" doc:"The period for which the limit counts packets: 'campaign', 'day' or 'hour'."`
	Max int64  `json:"max" doc:"The most packets in one period."`
}

// Durability is what a campaign promises about a grant if Redis fails right after the answer.
type Durability string

// The durability classes. DurabilityFast relies on the configuration of Redis. DurabilityReplica means that the grant
// is on as many replicas as the primary has had since its shard was opened (WAIT). DurabilityFsync means that the
// grant is on disk (WAITAOF 1 0, or appendfsync always).
const (
	DurabilityFast    Durability = "fast"
	DurabilityReplica Durability = "replica"
	DurabilityFsync   Durability = "fsync"
)

// Campaign is the specification of a campaign: a funded set of packets that users can grab for a limited time. It
// never changes after its creation. Package campaign reads and validates it. The plan's hash covers its JSON form,
// with the fields in this order.
type Campaign struct {
	ID       string `json:"id" doc:"The campaign's id. It can never be used for another campaign."`
	Name     string `json:"name" doc:"The campaign's name for people."`
	Kind     Kind   `json:"kind" doc:"What the packets are: 'red_packet' or 'coupon'."`
	Currency string `json:"currency,omitempty" doc:"Currency of the amounts, ISO 4217; absent for coupons without a value."`
	// Total is the sum of all packets, in minor units; 0 for coupons without a value.
	Total   Amount `json:"total" doc:"Sum of all packets, in minor units; 0 for coupons without a value."`
	Packets int64  `json:"packets" doc:"Number of packets."`
	Split   Split  `json:"split" doc:"How the total is split into packets."`
	// From and To are the begin and the end of the window, in whole milliseconds.
	From time.Time `json:"from" doc:"Time when grabs begin, with at most three decimal places of a second."`
	To   time.Time `json:"to" doc:"Time when grabs end, with at most three decimal places of a second."`
	// TimeZone is the IANA name of the time zone in which days and hours begin.
	TimeZone   string     `json:"time_zone" doc:"IANA name of the time zone in which days and hours of limits begin."`
	Limits     []Limit    `json:"limits" doc:"The most packets that one user, or one value of a fact, gets."`
	Sponsor    string     `json:"sponsor" doc:"Name of the sponsor, who pays for the packets and gets the remaining money back."`
	Durability Durability `json:"durability" doc:"What protects a grant before the user gets the answer: 'fast', 'replica' or 'fsync'."`
	// Codes is the source of the coupon codes; nil for a campaign without codes.
	Codes *Codes `json:"codes,omitempty" doc:"Source of the coupon codes. Absent for a campaign without codes."`
	// Shards is the number of shards over which the packets are dealt; 0 means one. A campaign on several shards can
	// only have limits by user.
	Shards int `json:"shards,omitempty" doc:"Number of shards over which the packets are dealt. Absent for one shard."`
}

// Codes is the source of the coupon codes. Exactly one field is set. Package campaign describes patterns and files.
type Codes struct {
	Pattern string `json:"pattern,omitempty" doc:"The pattern by which the codes are drawn."`
	File    string `json:"file,omitempty" doc:"Name of the file that the codes are read from."`
}

// MaxCodeLength is the maximum length of a coupon code, in bytes.
const MaxCodeLength = 64

// CheckCode returns an error unless the code has 1 to 64 bytes of printable ASCII without spaces. The error does not
// repeat the code, which is a secret.
func CheckCode(code string) error {
	if code == "" {
		return errEmptyID
	}
	if len(code) > MaxCodeLength {
		return fmt.Errorf("the code has %d bytes; at most %d are allowed", len(code), MaxCodeLength)
	}
	for i := range len(code) {
		if code[i] <= ' ' || code[i] > '~' {
			return fmt.Errorf("byte %d is %#02x: only printable ASCII without spaces is allowed", i, code[i])
		}
	}
	return nil
}

// Places returns the number of shards on which the campaign has packets.
func (c *Campaign) Places() int { return max(1, c.Shards) }

// UserHold returns how many packets one user may get in the campaign. Validation ensures that there is such a limit.
func (c *Campaign) UserHold() int64 {
	hold := int64(MaxUserHold)
	for _, l := range c.Limits {
		if l.By == ByUser && l.Per == PerCampaign {
			hold = min(hold, l.Max)
		}
	}
	return hold
}
