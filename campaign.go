package hongbao

import (
	"fmt"
	"time"
)

// Amount is money in minor units (cents, fen) of the campaign's currency. It is never a fraction.
type Amount int64

// MaxAmount is the largest amount anywhere: the largest integer up to which Lua numbers are exact.
const MaxAmount Amount = 1<<53 - 1

// Bounds of a campaign.
const (
	MaxPackets  = 10_000_000
	MaxTiers    = 1_000
	MaxLimits   = 16
	MaxUserHold = 100 // packets of one user in one campaign
	MaxWindow   = 400 * 24 * time.Hour
	// MaxCampaignShards bounds Campaign.Shards.
	MaxCampaignShards = 64
)

// Kind says what a campaign's packets are.
type Kind string

// The kinds of campaign.
const (
	KindRedPacket Kind = "red_packet"
	KindCoupon    Kind = "coupon"
)

// SplitMode says how the total is split into packets.
type SplitMode string

// The split modes. Even: equal amounts, and the first total%packets packets get one unit more. Random: doubled mean
// between the minimum and the maximum. Tiers: a listed number of packets of each amount.
const (
	SplitEven   SplitMode = "even"
	SplitRandom SplitMode = "random"
	SplitTiers  SplitMode = "tiers"
)

// Split says how the total is split into packets. Min and Max are for SplitRandom, Tiers for SplitTiers.
type Split struct {
	Mode  SplitMode `json:"mode" doc:"even, random or tiers."`
	Min   Amount    `json:"min,omitempty" doc:"Smallest packet of random, in minor units."`
	Max   Amount    `json:"max,omitempty" doc:"Largest packet of random, in minor units."`
	Tiers []Tier    `json:"tiers,omitempty" doc:"The packets of tiers; absent for other modes."`
}

// Tier is a number of packets of one amount.
type Tier struct {
	Amount  Amount `json:"amount" doc:"Of each packet, in minor units."`
	Packets int64  `json:"packets" doc:"How many packets have it."`
}

// ByUser is the Limit.By of a limit per user; any other value names a fact of the grab.
const ByUser = "user"

// Period is the time over which a limit counts.
type Period string

// The periods. Days and hours follow the wall clock in the campaign's time zone.
const (
	PerCampaign Period = "campaign"
	PerDay      Period = "day"
	PerHour     Period = "hour"
)

// Limit bounds how many packets one user, or one value of a fact, gets in a period.
type Limit struct {
	By  string `json:"by" doc:"user, or the fact of the grab that it counts by."`
	Per Period `json:"per" doc:"How long it counts: campaign, day or hour."`
	Max int64  `json:"max" doc:"Packets at most."`
}

// Durability is the promise for a grant if Redis fails right after the answer.
type Durability string

// The durability classes. DurabilityFast: as Redis is configured. DurabilityReplica: as many replicas have the grant
// as the primary has had (WAIT). DurabilityFsync: the grant is on disk (WAITAOF 1 0, or appendfsync always).
const (
	DurabilityFast    Durability = "fast"
	DurabilityReplica Durability = "replica"
	DurabilityFsync   Durability = "fsync"
)

// Campaign is a specification: a funded set of packets that is open for a time. It does not change once it is
// created. Package campaign reads and validates it. The plan's hash covers its JSON form, with the fields in this
// order.
type Campaign struct {
	ID       string `json:"id" doc:"Its id: no other campaign can ever take it."`
	Name     string `json:"name" doc:"Its name for people."`
	Kind     Kind   `json:"kind" doc:"red_packet or coupon."`
	Currency string `json:"currency,omitempty" doc:"ISO 4217; absent for coupons without a value."`
	// Total is the sum of all packets, in minor units; 0 for coupons without a value.
	Total   Amount `json:"total" doc:"Sum of all packets, in minor units; 0 for coupons without a value."`
	Packets int64  `json:"packets" doc:"How many packets."`
	Split   Split  `json:"split" doc:"How the total becomes packets."`
	// From and To are the window: open at From, ended at To. Whole milliseconds.
	From time.Time `json:"from" doc:"When grabs begin, in whole milliseconds."`
	To   time.Time `json:"to" doc:"When grabs end, in whole milliseconds."`
	// TimeZone is the IANA name of the time zone for days and hours.
	TimeZone   string     `json:"time_zone" doc:"IANA name of the zone in which days and hours are counted."`
	Limits     []Limit    `json:"limits" doc:"How many packets one user, or one value of a fact, gets."`
	Sponsor    string     `json:"sponsor" doc:"Who pays, and gets back what nobody got."`
	Durability Durability `json:"durability" doc:"What a grant has before its answer: fast, replica or fsync."`
	// Codes says where the packets' codes come from; nil for a campaign without codes.
	Codes *Codes `json:"codes,omitempty" doc:"Where the codes of coupons come from; absent for a campaign without codes."`
	// Shards is the number of the deployment's shards over which the packets are dealt; 0 means one. On several
	// shards, only limits by user are allowed.
	Shards int `json:"shards,omitempty" doc:"Over how many shards it is dealt; absent for one."`
}

// Codes says where each packet's code comes from. Exactly one of the fields is set. Package campaign describes
// patterns and files.
type Codes struct {
	Pattern string `json:"pattern,omitempty" doc:"The codes are drawn by this pattern."`
	File    string `json:"file,omitempty" doc:"Name of the file that the codes were read from."`
}

// MaxCodeLength bounds a code, in bytes.
const MaxCodeLength = 64

// CheckCode returns an error for a coupon code that is not 1 to 64 bytes of printable ASCII without spaces. The error
// does not repeat the code, which is a secret.
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

// Places returns the number of shards on which the campaign has packets.
func (c *Campaign) Places() int { return max(1, c.Shards) }

// UserHold returns how many packets one user may have in the campaign. Validation ensures that there is such a limit.
func (c *Campaign) UserHold() int64 {
	hold := int64(MaxUserHold)
	for _, l := range c.Limits {
		if l.By == ByUser && l.Per == PerCampaign {
			hold = min(hold, l.Max)
		}
	}
	return hold
}
