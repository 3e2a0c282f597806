package campaign

import (
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // for machines without zone files; the field zone in Redis decides a loaded campaign's days and hours
	"unicode"
	"unicode/utf8"

	"github.com/hongbao-project/hongbao"
)

// maxNameBytes limits the name of a campaign.
const maxNameBytes = 200

// check adds all problems of c to p, except those that depend on the present time. A path that already has a
// problem gets no second problem.
func check(c *hongbao.Campaign, p *problems) {
	checkNames(c, p)
	checkMoney(c, p)
	checkSplit(c, p)
	checkWindow(c, p)
	checkLimits(c, p)
	checkCodes(c, p)
	checkShards(c, p)
}

func checkNames(c *hongbao.Campaign, p *problems) {
	if p.present("id", c.ID) {
		if err := hongbao.CheckCampaignID(c.ID); err != nil {
			p.add("id", "id_invalid", "%.80q: %s", c.ID, err)
		}
	}
	if p.present("name", c.Name) && (len(c.Name) > maxNameBytes || !utf8.ValidString(c.Name) ||
		strings.IndexFunc(c.Name, controls) >= 0) {
		p.add("name", "name_invalid",
			"%.80q; give 1 to %d bytes of UTF-8 without control characters or characters that change the "+
				"direction of text", c.Name, maxNameBytes)
	}
	if p.present("kind", string(c.Kind)) && c.Kind != hongbao.KindRedPacket && c.Kind != hongbao.KindCoupon {
		p.add("kind", "kind_unknown", "%.80q; give red_packet or coupon", c.Kind)
	}
	if p.present("sponsor", c.Sponsor) {
		if err := hongbao.CheckID(c.Sponsor); err != nil {
			p.add("sponsor", "sponsor_invalid", "%.80q: %s", c.Sponsor, err)
		}
	}
	if p.present("durability", string(c.Durability)) &&
		!slices.Contains([]hongbao.Durability{hongbao.DurabilityFast, hongbao.DurabilityReplica, hongbao.DurabilityFsync},
			c.Durability) {
		p.add("durability", "durability_unknown", "%.80q; give fast, replica or fsync", c.Durability)
	}
	if p.present("time_zone", c.TimeZone) {
		if err := checkZone(c.TimeZone); err != nil {
			p.add("time_zone", "time_zone_unknown", "%s", err)
		}
	}
}

// present reports whether a text is set and its path has no problem. It adds a problem for a missing text.
func (p *problems) present(path, value string) bool {
	if !p.fine(path) {
		return false
	}
	if value == "" {
		p.add(path, "required", "missing; give a value")
		return false
	}
	return true
}

func checkMoney(c *hongbao.Campaign, p *problems) {
	if p.fine("packets") && (c.Packets < 1 || c.Packets > hongbao.MaxPackets) {
		p.add("packets", "packets_out_of_range", "%d; give 1 to %d", c.Packets, hongbao.MaxPackets)
	}
	p.amount("total", c.Total, 0)
	if c.Currency == "" && c.Kind != hongbao.KindRedPacket {
		if p.fine("kind", "currency", "total") && c.Total > 0 {
			p.add("currency", "currency_required",
				"the coupon has a total of %d; add a currency, or leave the total out", c.Total)
		}
		return
	}
	if p.present("currency", c.Currency) && hongbao.CheckCurrency(c.Currency) != nil {
		p.add("currency", "currency_unknown", "%.80q; give an ISO 4217 code that is in use, such as CNY", c.Currency)
	}
	if p.fine("total") && c.Total == 0 {
		p.add("total", "amount_not_positive", "the total is 0 or missing; give the sum of all packets in minor units")
	}
}

// amount adds a problem if the amount is below least or above hongbao.MaxAmount.
func (p *problems) amount(path string, a, least hongbao.Amount) {
	switch {
	case !p.fine(path):
	case a < least:
		p.add(path, "amount_not_positive", "the amount %d is too small or missing; give at least %d", a, least)
	case a > hongbao.MaxAmount:
		p.add(path, "amount_out_of_range", "the amount %d is too large; give at most %d", a, hongbao.MaxAmount)
	}
}

func checkSplit(c *hongbao.Campaign, p *problems) {
	if !p.fine("split") {
		return
	}
	s := &c.Split
	if !p.present("split.mode", string(s.Mode)) {
		return
	}
	if s.Mode != hongbao.SplitRandom && (s.Min != 0 || s.Max != 0) {
		p.add("split", "not_allowed_here", "only mode random has min and max; leave them out")
	}
	if s.Mode != hongbao.SplitTiers && len(s.Tiers) > 0 {
		p.add("split", "not_allowed_here", "only mode tiers has tiers; leave them out")
	}
	switch s.Mode {
	case hongbao.SplitEven:
		// A coupon without a value has the total 0, which is not too small.
		if p.fine("total", "packets") && c.Total > 0 && int64(c.Total) < c.Packets {
			p.add("total", "budget_too_small", "the total of %d is below 1 for each of %d packets; raise it", c.Total, c.Packets)
		}
	case hongbao.SplitRandom:
		checkRandom(c, p)
	case hongbao.SplitTiers:
		checkTiers(c, p)
	default:
		p.add("split.mode", "split_mode_unknown", "%.80q; give even, random or tiers", s.Mode)
	}
}

func checkRandom(c *hongbao.Campaign, p *problems) {
	if c.Kind == hongbao.KindCoupon {
		p.add("split.mode", "not_allowed_here", "a coupon can't have random amounts; give even or tiers")
		return
	}
	s := &c.Split
	p.amount("split.min", s.Min, 1)
	p.amount("split.max", s.Max, 1)
	if !p.fine("split.min", "split.max") {
		return
	}
	if s.Min > s.Max {
		p.add("split.min", "min_above_max", "min %d is above max %d; lower min", s.Min, s.Max)
		return
	}
	if !p.fine("total", "packets") {
		return
	}
	if times(c.Packets, s.Min) > c.Total {
		p.add("total", "budget_too_small",
			"the total of %d is too small for %d packets of at least %d; raise it", c.Total, c.Packets, s.Min)
	}
	if times(c.Packets, s.Max) < c.Total {
		p.add("total", "budget_too_large",
			"the total of %d is too large for %d packets of at most %d; raise max", c.Total, c.Packets, s.Max)
	}
}

func checkTiers(c *hongbao.Campaign, p *problems) {
	s := &c.Split
	if !p.fine("split.tiers") {
		return
	}
	if len(s.Tiers) == 0 {
		p.add("split.tiers", "required", "no tiers; list amounts and packets")
		return
	}
	if len(s.Tiers) > hongbao.MaxTiers {
		p.add("split.tiers", "too_many_tiers", "there are %d tiers; at most %d are allowed", len(s.Tiers), hongbao.MaxTiers)
		return
	}
	var packets int64
	var total hongbao.Amount
	whole := p.fine("total", "packets")
	for i, t := range s.Tiers {
		path := index("split.tiers", i)
		p.amount(path+".amount", t.Amount, 1)
		if p.fine(path+".packets") && (t.Packets < 1 || t.Packets > hongbao.MaxPackets) {
			p.add(path+".packets", "packets_out_of_range", "%d; give 1 to %d", t.Packets, hongbao.MaxPackets)
		}
		if whole = whole && p.fine(path, path+".amount", path+".packets"); whole {
			packets += t.Packets
			total = min(total+times(t.Packets, t.Amount), beyond)
		}
	}
	if whole && packets != c.Packets {
		p.add("split.tiers", "tiers_packets_mismatch",
			"the tiers have %d packets, but the campaign has %d; make the numbers equal", packets,
			c.Packets)
	}
	if whole && total != c.Total {
		more := ""
		if total == beyond {
			more = " or more"
		}
		p.add("split.tiers", "tiers_total_mismatch",
			"the tiers add up to %d%s, but the total is %d; make the sums equal", total, more,
			c.Total)
	}
}

// beyond represents every product or sum above hongbao.MaxAmount.
const beyond = hongbao.MaxAmount + 1

// times returns n times a, or beyond if that is too large. Both must be above 0.
func times(n int64, a hongbao.Amount) hongbao.Amount {
	high, low := bits.Mul64(uint64(n), uint64(a))
	if high > 0 || low > uint64(hongbao.MaxAmount) {
		return beyond
	}
	return hongbao.Amount(low)
}

func checkWindow(c *hongbao.Campaign, p *problems) {
	if !p.fine("window") {
		return
	}
	checkInstant("window.from", c.From, p)
	checkInstant("window.to", c.To, p)
	if !p.fine("window.from", "window.to") {
		return
	}
	if !c.From.Before(c.To) {
		p.add("window", "window_reversed", "from is not before to; swap them")
	} else if c.To.Sub(c.From) > hongbao.MaxWindow {
		p.add("window", "window_too_long", "the window is longer than %d days; shorten it", hongbao.MaxWindow/(24*time.Hour))
	}
}

func checkInstant(path string, t time.Time, p *problems) {
	switch year := t.UTC().Year(); {
	case !p.fine(path):
	case t.IsZero():
		p.add(path, "required", "missing; give a time")
	case year < 2000 || year > 2100:
		p.add(path, "time_out_of_range", "the year is %d; give a year from 2000 to 2100", year)
	case t.Nanosecond()%int(time.Millisecond) != 0:
		p.add(path, "time_not_whole_ms", "the time has fractions of a millisecond; give at most three decimal places")
	}
}

func checkLimits(c *hongbao.Campaign, p *problems) {
	if !p.fine("limits") {
		return
	}
	if len(c.Limits) > hongbao.MaxLimits {
		p.add("limits", "too_many_limits",
			"there are %d limits, including the one by user per campaign; at most %d are allowed",
			len(c.Limits), hongbao.MaxLimits)
		return
	}
	type key struct {
		by  string
		per hongbao.Period
	}
	seen, facts := make(map[key]bool), make(map[string]bool)
	for i, l := range c.Limits {
		path := index("limits", i)
		if !p.fine(path) {
			continue
		}
		checkLimit(path, l, p)
		if !p.fine(path+".by", path+".per") {
			continue
		}
		if seen[key{l.By, l.Per}] {
			p.add(path, "limit_duplicate", "there are two limits by %s per %s; keep one", l.By, l.Per)
		}
		seen[key{l.By, l.Per}] = true
		if l.By != hongbao.ByUser {
			facts[l.By] = true
		}
	}
	if len(facts) > hongbao.MaxFacts {
		p.add("limits", "too_many_facts",
			"the limits count by %d facts; at most %d are allowed", len(facts), hongbao.MaxFacts)
	}
	if !hasUserLimit(c) {
		p.add("limits", "user_limit_required", "there is no limit by user per campaign; add one, or call Complete")
	}
}

// checkShards checks the number of shards, and allows only limits by user on several shards. A grab carries what its
// user got on other shards, but not what a fact got there.
func checkShards(c *hongbao.Campaign, p *problems) {
	if p.fine("shards") && (c.Shards < 0 || c.Shards > hongbao.MaxCampaignShards) {
		p.add("shards", "shards_out_of_range", "%d; give 1 to %d", c.Shards, hongbao.MaxCampaignShards)
	}
	if c.Places() == 1 || !p.fine("shards") {
		return
	}
	for i, l := range c.Limits {
		path := index("limits", i)
		if p.fine(path, path+".by") && l.By != hongbao.ByUser {
			p.add(path, "limit_needs_one_shard",
				"a limit by %.80q needs a campaign on one shard, but this one has %d; remove the limit or the shards", l.By,
				c.Shards)
		}
	}
}

func checkLimit(path string, l hongbao.Limit, p *problems) {
	if p.present(path+".by", l.By) && l.By != hongbao.ByUser {
		if err := hongbao.CheckFactName(l.By); err != nil {
			p.add(path+".by", "limit_by_invalid", "%.80q is neither user nor a fact's name: %s", l.By, err)
		}
	}
	if p.present(path+".per", string(l.Per)) &&
		!slices.Contains([]hongbao.Period{hongbao.PerCampaign, hongbao.PerDay, hongbao.PerHour}, l.Per) {
		p.add(path+".per", "limit_per_unknown", "%.80q; give campaign, day or hour", l.Per)
	}
	switch {
	case !p.fine(path + ".max"):
	case l.Max < 1 || l.Max > hongbao.MaxPackets:
		p.add(path+".max", "limit_max_out_of_range", "%d; give 1 to %d", l.Max, hongbao.MaxPackets)
	case l.By == hongbao.ByUser && l.Per == hongbao.PerCampaign && l.Max > hongbao.MaxUserHold:
		p.add(path+".max", "user_hold_too_large",
			"the maximum is %d; a user may get at most %d packets", l.Max, hongbao.MaxUserHold)
	}
}

// zoneName does not match "Local", "localtime", "posix/..." and "right/...", because these names depend on the machine
// or count leap seconds.
var zoneName = regexp.MustCompile(`^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$`)

// checkZone returns an error unless name is the IANA name of a time zone.
func checkZone(name string) error {
	if len(name) > 64 || name == "Local" || !zoneName.MatchString(name) {
		return fmt.Errorf("%.80q is not the IANA name of a time zone; give a name such as Asia/Shanghai", name)
	}
	if _, err := time.LoadLocation(name); err != nil {
		return fmt.Errorf("%.80q is not in the time zone database; give a name such as Asia/Shanghai", name)
	}
	return nil
}

// controls reports whether a character changes how the text around it is shown. A character that changes the direction
// of text can make a name look like another name.
func controls(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
