package campaign

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Read reads one specification in YAML or JSON, of at most 1 MiB, and fills in the defaults (see Complete). It checks
// everything that does not depend on the present time; Validate also checks the time. Read returns all problems in one
// *SpecError. A read error of r is Transient.
//
// The keys are id, name, kind, currency, total, packets, split (mode, min, max, tiers), window (from, to), time_zone,
// limits (by, per, max), sponsor, durability, codes (pattern, file) and shards. Read also reads the canonical form,
// which has from and to at the top level.
func Read(r io.Reader) (hongbao.Campaign, error) {
	return read(r, func(*hongbao.Campaign) {})
}

// ReadWindow reads like Read, with a window in place of the text's, which may have none.
func ReadWindow(r io.Reader, from, to time.Time) (hongbao.Campaign, error) {
	return read(r, func(c *hongbao.Campaign) { c.From, c.To = from, to })
}

func read(r io.Reader, change func(c *hongbao.Campaign)) (hongbao.Campaign, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSpecBytes+1))
	if err != nil {
		return hongbao.Campaign{}, hongbao.Errorf(hongbao.ClassTransient, "reading the campaign's specification: %w", err)
	}
	var p problems
	if len(data) > maxSpecBytes {
		p.add("", "too_large", "the text is longer than %d bytes; shorten it", maxSpecBytes)
		return hongbao.Campaign{}, p.err()
	}
	root := parse(data, &p)
	if root == nil {
		return hongbao.Campaign{}, p.err()
	}
	var c hongbao.Campaign
	decoder{&p}.campaign(root, &c)
	change(&c)
	c = Complete(c)
	check(&c, &p)
	if err := p.err(); err != nil {
		return hongbao.Campaign{}, err
	}
	return c, nil
}

// Complete returns c with defaults: time zone UTC, durability fast, and a limit of one packet per user if c has no
// limit by user per campaign. It replaces Shards 1 by 0, the form that campaigns had before Shards existed. It does
// not change the slices that c shares with others.
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

// Validate checks a campaign that is created at the time now. It checks everything that Read checks, and that the
// window has not ended. It fills in no defaults. It returns all problems in one *SpecError.
func Validate(c hongbao.Campaign, now time.Time) error {
	var p problems
	check(&c, &p)
	if p.fine("window", "window.to") && !c.To.After(now) {
		p.add("window.to", "window_past",
			"the window ended at %s; give a time in the future", c.To.UTC().Format(time.RFC3339Nano))
	}
	return p.err()
}

// Canonical returns the canonical form of a campaign, which its commitment covers. It is the JSON of hongbao.Campaign
// as encoding/json writes it, with times in UTC and whole milliseconds. Read can read it. c must be valid.
func Canonical(c hongbao.Campaign) []byte {
	c.From, c.To = c.From.UTC().Truncate(time.Millisecond), c.To.UTC().Truncate(time.Millisecond)
	if c.Shards == 1 {
		c.Shards = 0
	}
	data, err := json.Marshal(c)
	if err != nil {
		// Marshal only fails for a year with five digits, which a valid campaign can't have.
		panic(fmt.Sprintf("campaign: canonical form of %.80q: %v", c.ID, err))
	}
	return data
}
