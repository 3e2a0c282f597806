package hongbao

import (
	"fmt"
	"time"
)

// Amount is money in minor units (cents, fen) of the campaign's currency. It is never a fraction.
type Amount int64

// MaxAmount is the largest amount anywhere: what a Lua number holds exactly.
const MaxAmount Amount = 1<<53 - 1

// Bounds of a campaign.
const (
	MaxPackets  = 10_000_000
	MaxTiers    = 1_000
	MaxLimits   = 16
	MaxUserHold = 100 // packets that one user may hold in one campaign
	MaxWindow   = 400 * 24 * time.Hour
	// MaxCampaignShards bounds Campaign.Shards.
	MaxCampaignShards = 64
)

// Kind is what a campaign gives away.
type Kind string

// The kinds of campaign.
const (
	KindRedPacket Kind = "red_packet"
	KindCoupon    Kind = "coupon"
)

// SplitMode is how the total becomes packets.
type SplitMode string

// The ways to split. Even: equal amounts, the first total%packets of them one unit more. Random: doubled mean between
// the minimum and the maximum. Tiers: as many packets of each amount as listed.
const (
	SplitEven   SplitMode = "even"
	SplitRandom SplitMode = "random"
	SplitTiers  SplitMode = "tiers"
)

// Split says how the total becomes packets. Min and Max are for SplitRandom, Tiers for SplitTiers.
type Split struct {
	Mode  SplitMode `json:"mode"`
	Min   Amount    `json:"min,omitempty"`
	Max   Amount    `json:"max,omitempty"`
	Tiers []Tier    `json:"tiers,omitempty"`
}

// Tier is a number of packets of one amount.
type Tier struct {
	Amount  Amount `json:"amount"`
	Packets int64  `json:"packets"`
}

// ByUser is the Limit.By that counts per user; any other value names a fact of the grab.
const ByUser = "user"

// Period is how long a limit counts.
type Period string

// The periods. Days and hours are those of the clock on the wall in the campaign's time zone.
const (
	PerCampaign Period = "campaign"
	PerDay      Period = "day"
	PerHour     Period = "hour"
)

// Limit bounds how many packets one user, or one value of a fact, gets in a period.
type Limit struct {
	By  string `json:"by"`
	Per Period `json:"per"`
	Max int64  `json:"max"`
}

// Durability is what "you won" means when Redis fails right after the answer.
type Durability string

// The durability classes. DurabilityFast: as Redis is configured. DurabilityReplica: one replica has it (WAIT 1).
// DurabilityFsync: it is on disk (WAITAOF 1 0, or appendfsync always).
const (
	DurabilityFast    Durability = "fast"
	DurabilityReplica Durability = "replica"
	DurabilityFsync   Durability = "fsync"
)

// Campaign is a specification: a funded set of packets that is open for a time. It does not change once it is created.
// Package campaign reads and validates it; its JSON form, fields in this order, is what the plan's hash covers.
type Campaign struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Kind     Kind   `json:"kind"`
	Currency string `json:"currency,omitempty"`
	// Total is the sum of all packets, in minor units; 0 for coupons without a value.
	Total   Amount `json:"total"`
	Packets int64  `json:"packets"`
	Split   Split  `json:"split"`
	// From and To are the window: open at From, ended at To. Whole milliseconds.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// TimeZone is the IANA name of the zone in which days and hours are counted.
	TimeZone   string     `json:"time_zone"`
	Limits     []Limit    `json:"limits"`
	Sponsor    string     `json:"sponsor"`
	Durability Durability `json:"durability"`
	// Codes says where the codes of a coupon's packets come from; nil for a campaign without codes.
	Codes *Codes `json:"codes,omitempty"`
	// Shards is over how many of the deployment's shards the packets are dealt; 0 stands for one. Only limits by user
	// hold over several shards.
	Shards int `json:"shards,omitempty"`
}

// Codes says where each packet's code comes from: one of the two is set. Package campaign describes patterns and files.
type Codes struct {
	Pattern string `json:"pattern,omitempty"`
	File    string `json:"file,omitempty"`
}

// MaxCodeLength bounds a code, in bytes.
const MaxCodeLength = 64

// CheckCode refuses a coupon's code that is not 1 to 64 bytes of printable ASCII without spaces. The error does not
// repeat the code, which is a secret.
func CheckCode(code string) error {
	if code == "" {
		return errEmptyID
	}
	if len(code) > MaxCodeLength {
		return fmt.Errorf("it has %d bytes, at most %d are allowed", len(code), MaxCodeLength)
	}
	for i := range len(code) {
		if code[i] <= ' ' || code[i] > '~' {
			return fmt.Errorf("byte %d is %#02x: only printable ASCII without spaces is allowed", i, code[i])
		}
	}
	return nil
}

// Places is on how many shards the campaign has packets.
func (c *Campaign) Places() int { return max(1, c.Shards) }

// UserHold is how many packets one user may hold in the campaign. Validation makes sure that there is such a limit.
func (c *Campaign) UserHold() int64 {
	hold := int64(MaxUserHold)
	for _, l := range c.Limits {
		if l.By == ByUser && l.Per == PerCampaign {
			hold = min(hold, l.Max)
		}
	}
	return hold
}
