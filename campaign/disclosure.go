package campaign

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
)

// DisclosureFormat is the value of Disclosure.Format.
const DisclosureFormat = "hongbao.reveal.v1"

// Disclosure is published after the refund. With it, and the hash that was published before the start, anyone can
// recompute the draw.
type Disclosure struct {
	Format   string `json:"format" doc:"Always hongbao.reveal.v1."`
	Campaign string `json:"campaign" doc:"The campaign's id."`
	// Canonical is the specification in exactly the bytes that are hashed.
	Canonical string `json:"canonical" doc:"The specification, byte by byte as the hash covers it."`
	Hash      string `json:"plan_hash" doc:"The hash that was published before the start."`
	// Seed is in hexadecimal.
	Seed     string    `json:"seed" doc:"In hexadecimal."`
	Revealed time.Time `json:"revealed_at" doc:"When the seed was made public."`
	// TopUps are the generations from 2 on, in order.
	TopUps []DisclosedTopUp `json:"top_ups,omitempty" doc:"Packets that were added, in their order; absent if none were."`
}

// maxDisclosure bounds the text that ReadDisclosure reads. A specification has up to 1 MiB, which JSON may make twice
// as long. Each of 63 top-ups has up to a thousand tiers.
const maxDisclosure = 16 << 20

// ReadDisclosure reads a disclosure's JSON and verifies nothing. A text that can't be a disclosure is a Permanent
// error.
func ReadDisclosure(r io.Reader) (Disclosure, error) {
	var d Disclosure
	dec := json.NewDecoder(io.LimitReader(r, maxDisclosure))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return d, hongbao.Errorf(hongbao.ClassPermanent, "this is not what `hongbao campaign reveal` wrote: %w", err)
	}
	if d.Format != DisclosureFormat {
		return d, hongbao.Errorf(hongbao.ClassPermanent, "the format is %.40q, this build reads %q", d.Format,
			DisclosureFormat)
	}
	return d, nil
}

// Verify recomputes the draw from the disclosure alone. It returns the specification and the plan, in which the
// packets of each top-up follow the earlier ones. published are the hashes that were published before the start and
// with each top-up. The hash of a top-up covers everything before it. Without published hashes, Verify compares the
// disclosure only with itself. A mismatch is a Conflict: the draw is not the one that was promised.
func (d *Disclosure) Verify(published ...string) (hongbao.Campaign, *Plan, error) {
	c, err := Read(strings.NewReader(d.Canonical))
	if err != nil {
		return c, nil, hongbao.Errorf(hongbao.ClassConflict, "the specification can't be read: %w", err)
	}
	if string(Canonical(c)) != d.Canonical || c.ID != d.Campaign {
		return c, nil, hongbao.Errorf(hongbao.ClassConflict,
			"the specification is not in its canonical form, or not that of campaign %.80q", d.Campaign)
	}
	seed, err := ParseSeed(d.Seed)
	if err != nil {
		return c, nil, hongbao.Errorf(hongbao.ClassConflict, "%w", err)
	}
	if err := Verify(c, seed, d.Hash); err != nil {
		return c, nil, err
	}
	hashes := d.Hashes()
	for _, hash := range published {
		if hash != "" && !slices.Contains(hashes, hash) {
			return c, nil, hongbao.Errorf(hongbao.ClassConflict, "the hash that was published is %.80q, the disclosure has %s: "+
				"seed or specification were exchanged after the start", hash, strings.Join(hashes, ", "))
		}
	}
	topUps := make([]TopUp, len(d.TopUps))
	for i := range d.TopUps {
		if topUps[i], err = d.TopUps[i].verify(c, i+2, hashes[i]); err != nil {
			return c, nil, err
		}
	}
	plan, err := NewPlan(c, seed, topUps...)
	return c, plan, err
}

// Hashes returns the hash of each generation, in order: first the specification's, then those of the top-ups.
func (d *Disclosure) Hashes() []string {
	hashes := []string{d.Hash}
	for i := range d.TopUps {
		hashes = append(hashes, d.TopUps[i].Hash)
	}
	return hashes
}

// GrantsChecked counts the lines that CheckGrants read.
type GrantsChecked struct {
	Grants int64 // of the campaign, each packet once
	Amount hongbao.Amount
	// Repeated counts the lines that repeat a grant, Others the grants of other campaigns.
	Repeated, Others int64
}

// grantLine has the fields of a line of `hongbao tail` that CheckGrants reads.
type grantLine struct {
	Event    string         `json:"event"`
	Campaign string         `json:"campaign"`
	Packet   int64          `json:"packet"`
	User     string         `json:"user"`
	Amount   hongbao.Amount `json:"amount"`
}

// maxWrong is how many wrong grants CheckGrants names.
const maxWrong = 20

// CheckGrants compares the grants that `hongbao tail` printed, JSON lines, with the plan. Each grant must have the
// planned amount, and no packet may have gone to two users. An error that names the wrong lines is a Conflict. A line
// that can't be read is a Permanent error.
func CheckGrants(r io.Reader, id string, plan *Plan) (GrantsChecked, error) {
	var out GrantsChecked
	var wrong []error
	bad := func(line int, format string, args ...any) {
		if len(wrong) < maxWrong {
			wrong = append(wrong, fmt.Errorf("line %d: "+format, append([]any{line}, args...)...))
		}
	}
	seen := make(map[int64]grantLine)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var g grantLine
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			return out, hongbao.Errorf(hongbao.ClassPermanent, "line %d is not what `hongbao tail` prints: %w", n, err)
		}
		if g.Campaign != id {
			out.Others++
			continue
		}
		if has, ok := seen[g.Packet]; ok {
			if has == g {
				out.Repeated++
			} else {
				bad(n, "packet %d was given to %.80q by event %s, and before to %.80q by event %s", g.Packet, g.User, g.Event,
					has.User, has.Event)
			}
			continue
		}
		seen[g.Packet] = g
		if want, ok := plan.Amount(g.Packet); !ok {
			bad(n, "the campaign has no packet %d", g.Packet)
		} else if want != g.Amount {
			bad(n, "packet %d was given with amount %d, planned is %d", g.Packet, g.Amount, want)
		}
		out.Grants, out.Amount = out.Grants+1, out.Amount+g.Amount
	}
	if err := lines.Err(); err != nil {
		return out, hongbao.Errorf(hongbao.ClassPermanent, "read the grants: %w", err)
	}
	if len(wrong) > 0 {
		return out, hongbao.Errorf(hongbao.ClassConflict, "the grants are not those of the plan:\n%w", errors.Join(wrong...))
	}
	return out, nil
}
