package campaign

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/hongbao-project/hongbao"
)

// TopUp is a generation of packets, with a draw of their own, that a sponsor adds to a campaign. Their numbers follow
// those of the generation before. Its JSON form, fields in this order, is what its hash covers.
type TopUp struct {
	Campaign string `json:"campaign"`
	// Generation is 2 for the first top-up; generation 1 has the packets of the specification.
	Generation int            `json:"generation"`
	Packets    int64          `json:"packets"`
	Total      hongbao.Amount `json:"total"`
	Split      hongbao.Split  `json:"split"`
	// Before is the hash of the generation before. So the hash of the last generation covers all of them.
	Before string `json:"before"`
	Seed   Seed   `json:"-"`
}

// Canonical returns the one written form of a top-up, which its hash covers.
func (t *TopUp) Canonical() []byte {
	data, err := json.Marshal(t)
	if err != nil {
		panic("campaign: canonical form of a top-up: " + err.Error()) // it has numbers and texts only
	}
	return data
}

// topUpTag keeps the hash of a top-up apart from every other hash.
const topUpTag = "hongbao.topup.v1\n"

// Commit returns the hash that is published with the top-up: of its canonical form and its seed, in hexadecimal.
func (t *TopUp) Commit() string {
	h := sha256.New()
	h.Write([]byte(topUpTag))
	h.Write(t.Canonical())
	h.Write([]byte{'\n'})
	h.Write(t.Seed[:])
	return hex.EncodeToString(h.Sum(nil))
}

// Check refuses a top-up of campaign c whose packets can't be drawn, as NewPlan does. It draws nothing.
func (t *TopUp) Check(c hongbao.Campaign) error {
	c, err := t.of(c)
	if err != nil {
		return err
	}
	return drawable(&c, t.Seed)
}

// plan draws the packets of the top-up of campaign c, by the rules of NewPlan. Index 0 is the top-up's first packet.
func (t *TopUp) plan(c hongbao.Campaign) (*Plan, error) {
	c, err := t.of(c)
	if err != nil {
		return nil, err
	}
	return NewPlan(c, t.Seed)
}

// of returns campaign c with the packets of the top-up alone.
func (t *TopUp) of(c hongbao.Campaign) (hongbao.Campaign, error) {
	if t.Campaign != c.ID {
		return c, hongbao.Errorf(hongbao.ClassPermanent, "the top-up is for campaign %.80q, not for campaign %.80q",
			t.Campaign, c.ID)
	}
	c.Packets, c.Total, c.Split = t.Packets, t.Total, t.Split
	return c, nil
}

// DisclosedTopUp is a top-up in a Disclosure.
type DisclosedTopUp struct {
	// Canonical is the top-up, byte by byte as the hash covers it.
	Canonical string `json:"canonical" doc:"The top-up, byte by byte as the hash covers it."`
	Hash      string `json:"plan_hash" doc:"The hash that was published with it."`
	// Seed is in hexadecimal.
	Seed string `json:"seed" doc:"In hexadecimal."`
}

// verify returns the top-up after checking that its packets can be drawn. generation and before are the generation and
// the hash of the generation before that the top-up must have.
func (d *DisclosedTopUp) verify(c hongbao.Campaign, generation int, before string) (t TopUp, err error) {
	dec := json.NewDecoder(bytes.NewReader([]byte(d.Canonical)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t); err != nil {
		return t, hongbao.Errorf(hongbao.ClassConflict, "generation %d can't be read: %w", generation, err)
	}
	if string(t.Canonical()) != d.Canonical || t.Campaign != c.ID || t.Generation != generation || t.Before != before {
		return t, hongbao.Errorf(hongbao.ClassConflict, "generation %d is not in its canonical form, not that of campaign "+
			"%.80q, or does not follow the generation before", generation, c.ID)
	}
	if t.Seed, err = ParseSeed(d.Seed); err != nil {
		return t, hongbao.Errorf(hongbao.ClassConflict, "generation %d: %w", generation, err)
	}
	if want := t.Commit(); want != d.Hash {
		return t, hongbao.Errorf(hongbao.ClassConflict, "the hash of generation %d is %.80q, its text and seed give %s: "+
			"one of the three was changed", generation, d.Hash, want)
	}
	if err := t.Check(c); err != nil {
		return t, hongbao.Errorf(hongbao.ClassConflict, "generation %d: %w", generation, err)
	}
	return t, nil
}
