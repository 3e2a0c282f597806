package campaign

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Read reads one specification, YAML or JSON, of at most maxSpecBytes, and fills the defaults (see Complete). It
// checks everything that does not depend on the present time; Validate also checks the time. Read returns all
// problems in one *SpecError. An error of r itself is Transient.
//
// The keys are id, name, kind, currency, total, packets, split (mode, min, max, tiers), window (from, to), time_zone,
// limits (by, per, max), sponsor, durability, codes (pattern, file) and shards. The canonical form, with from and to at
// the top, is read as well.
func Read(r io.Reader) (hongbao.Campaign, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSpecBytes+1))
	if err != nil {
		return hongbao.Campaign{}, hongbao.Errorf(hongbao.ClassTransient, "reading the campaign's specification: %w", err)
	}
	var p problems
	if len(data) > maxSpecBytes {
		p.add("", "too_large", "the text is above %d bytes; shorten it", maxSpecBytes)
		return hongbao.Campaign{}, p.err()
	}
	root := parse(data, &p)
	if root == nil {
		return hongbao.Campaign{}, p.err()
	}
	var c hongbao.Campaign
	decoder{&p}.campaign(root, &c)
	c = Complete(c)
	check(&c, &p)
	if err := p.err(); err != nil {
		return hongbao.Campaign{}, err
	}
	return c, nil
}

// Complete returns c with its defaults: time zone UTC, durability fast and, if there is no limit by user per
// campaign, one packet a user. One shard is written as none, as in campaigns that are older than shards. Complete
// does not change the memory that c's slices share with others.
func Complete(c hongbao.Campaign) hongbao.Campaign {
	if c.TimeZone == "" {
		c.TimeZone = "UTC"
	}
	if c.Durability == "" {
		c.Durability = hongbao.DurabilityFast
	}
	if c.Shards == 1 {
		c.Shards = 0
	}
	if !hasUserLimit(&c) {
		c.Limits = append(slices.Clip(c.Limits), hongbao.Limit{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 1})
	}
	return c
}

func hasUserLimit(c *hongbao.Campaign) bool {
	return slices.ContainsFunc(c.Limits, func(l hongbao.Limit) bool {
		return l.By == hongbao.ByUser && l.Per == hongbao.PerCampaign
	})
}

// Validate checks a campaign that is to be created at now: everything that Read checks, and that it is not over
// already. It fills no default. It returns all problems in one *SpecError.
func Validate(c hongbao.Campaign, now time.Time) error {
	var p problems
	check(&c, &p)
	if p.fine("window", "window.to") && !c.To.After(now) {
		p.add("window.to", "window_past", "it is over since %s; take a time after now", c.To.UTC().Format(time.RFC3339Nano))
	}
	return p.err()
}

// Canonical returns the one written form of a campaign, which its commitment covers: the JSON of hongbao.Campaign as
// encoding/json writes it, times in UTC and cut to milliseconds. Read reads it back. c must be valid.
func Canonical(c hongbao.Campaign) []byte {
	c.From, c.To = c.From.UTC().Truncate(time.Millisecond), c.To.UTC().Truncate(time.Millisecond)
	if c.Shards == 1 {
		c.Shards = 0
	}
	data, err := json.Marshal(c)
	if err != nil {
		// Only a year with five digits gets here; no valid campaign has one.
		panic(fmt.Sprintf("campaign: canonical form of %.80q: %v", c.ID, err))
	}
	return data
}
