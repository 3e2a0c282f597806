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

// DisclosureFormat is the value of Disclosure.Format in this version.
const DisclosureFormat = "hongbao.reveal.v1"

// Disclosure is published after the refund. Together with the hash that was published before the start, it lets anyone
// recompute the draw.
type Disclosure struct {
	Format   string `json:"format" doc:"Format of this disclosure: always hongbao.reveal.v1."`
	Campaign string `json:"campaign" doc:"The campaign's id."`
	// Canonical has exactly the bytes of the specification that the hash covers.
	Canonical string `json:"canonical" doc:"The specification as text. The hash covers exactly these bytes."`
	Hash      string `json:"plan_hash" doc:"The hash that was published before the start of the campaign."`
	// Seed is in hexadecimal.
	Seed     string    `json:"seed" doc:"The seed of the draw, in hexadecimal."`
	Revealed time.Time `json:"revealed_at" doc:"Time when the seed was made public."`
	// TopUps has the top-ups in their order, beginning with generation 2.
	TopUps []DisclosedTopUp `json:"top_ups,omitempty" doc:"The top-ups of the campaign, in their order. Absent if there were none."`
}

// maxDisclosure limits the text that ReadDisclosure reads. A specification has up to 1 MiB, which JSON escapes may
// double. There are up to 63 top-ups with up to a thousand tiers each.
const maxDisclosure = 16 << 20

// ReadDisclosure parses the JSON of a disclosure. It does not verify the disclosure. A text that is not a disclosure
// gives a Permanent error.
func ReadDisclosure(r io.Reader) (Disclosure, error) {
	var d Disclosure
	dec := json.NewDecoder(io.LimitReader(r, maxDisclosure))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return d, hongbao.Errorf(hongbao.ClassPermanent, "the text is not what `hongbao campaign reveal` wrote: %w", err)
	}
	if d.Format != DisclosureFormat {
		return d, hongbao.Errorf(hongbao.ClassPermanent, "the format is %.40q, but this build reads %q", d.Format,
			DisclosureFormat)
	}
	return d, nil
}

// Verify recomputes the draw from the disclosure, and returns the specification and the plan. In the plan, the packets
// of each top-up follow the earlier packets.
//
// published has the hashes that were published before the start and with each top-up; the hash of a top-up covers all
// earlier generations. Without published hashes, Verify only shows that the disclosure is consistent. A mismatch is a
// Conflict: the draw is not the promised draw.
func (d *Disclosure) Verify(published ...string) (hongbao.Campaign, *Plan, error) {
	c, err := Read(strings.NewReader(d.Canonical))
	if err != nil {
		return c, nil, hongbao.Errorf(hongbao.ClassConflict, "the specification can't be read: %w", err)
	}
	if string(Canonical(c)) != d.Canonical || c.ID != d.Campaign {
		return c, nil, hongbao.Errorf(hongbao.ClassConflict,
			"the specification is not in canonical form, or belongs to a campaign other than %.80q", d.Campaign)
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
			return c, nil, hongbao.Errorf(hongbao.ClassConflict, "the published hash is %.80q, but the disclosure has %s: "+
				"the seed or the specification was exchanged after the start", hash, strings.Join(hashes, ", "))
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

// Hashes returns the hashes of all generations, in order: the hash of the specification, then the hashes of the
// top-ups.
func (d *Disclosure) Hashes() []string {
	hashes := []string{d.Hash}
	for i := range d.TopUps {
		hashes = append(hashes, d.TopUps[i].Hash)
	}
	return hashes
}

// GrantsChecked is the result of CheckGrants.
type GrantsChecked struct {
	Grants int64 // of the campaign, without repeated lines
	Amount hongbao.Amount
	// Repeated counts lines that repeat a grant. Others counts grants of other campaigns.
	Repeated, Others int64
}

// grantLine has the fields that CheckGrants needs from a line of `hongbao tail`.
type grantLine struct {
	Event    string         `json:"event"`
	Campaign string         `json:"campaign"`
	Packet   int64          `json:"packet"`
	User     string         `json:"user"`
	Amount   hongbao.Amount `json:"amount"`
}

// maxWrong limits the wrong grants that the error of CheckGrants names.
const maxWrong = 20

// CheckGrants compares grants with the plan. It reads the JSON lines that `hongbao tail` prints. Each grant must have
// its planned amount, and no packet may have been granted twice. Wrong grants give a Conflict error that names their
// lines; an unreadable line gives a Permanent error.
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
			return out, hongbao.Errorf(hongbao.ClassPermanent, "line %d is not a line of `hongbao tail`: %w", n, err)
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
		return out, hongbao.Errorf(hongbao.ClassConflict, "the grants differ from the plan:\n%w", errors.Join(wrong...))
	}
	return out, nil
}
