package campaign

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/hongbao-project/hongbao"
)

// TopUp is a generation of packets that a sponsor adds to a campaign. It has its own draw. Its packet numbers follow
// those of the generation before. Its hash covers its JSON form, with the fields in this order.
type TopUp struct {
	Campaign string `json:"campaign"`
	// Generation counts from 2; generation 1 has the packets of the specification.
	Generation int            `json:"generation"`
	Packets    int64          `json:"packets"`
	Total      hongbao.Amount `json:"total"`
	Split      hongbao.Split  `json:"split"`
	// Before is the hash of the generation before, so the last hash covers all generations.
	Before string `json:"before"`
	Seed   Seed   `json:"-"`
}

// Canonical returns the canonical form of a top-up, which its hash covers.
func (t *TopUp) Canonical() []byte {
	data, err := json.Marshal(t)
	if err != nil {
		panic("campaign: canonical form of a top-up: " + err.Error()) // a top-up has only numbers and texts
	}
	return data
}

// topUpTag makes the hash of a top-up different from all other hashes (domain separation).
const topUpTag = "hongbao.topup.v1\n"

// Commit returns the hash that is published with the top-up, in hexadecimal. It covers the canonical form and the
// seed.
func (t *TopUp) Commit() string {
	h := sha256.New()
	h.Write([]byte(topUpTag))
	h.Write(t.Canonical())
	h.Write([]byte{'\n'})
	h.Write(t.Seed[:])
	return hex.EncodeToString(h.Sum(nil))
}

// Check returns an error if the packets of the top-up can't be drawn for campaign c. It does not draw them.
func (t *TopUp) Check(c hongbao.Campaign) error {
	c, err := t.of(c)
	if err != nil {
		return err
	}
	return drawable(&c, t.Seed)
}

// plan draws the packets of the top-up for campaign c, by the rules of NewPlan. Index 0 is the top-up's first packet.
func (t *TopUp) plan(c hongbao.Campaign) (*Plan, error) {
	c, err := t.of(c)
	if err != nil {
		return nil, err
	}
	return NewPlan(c, t.Seed)
}

// of returns campaign c with the packets, total and split of the top-up instead of its own.
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
	// Canonical has exactly the bytes of the top-up that the hash covers.
	Canonical string `json:"canonical" doc:"The top-up as text. The hash covers exactly these bytes."`
	Hash      string `json:"plan_hash" doc:"The hash that was published at the top-up."`
	// Seed is in hexadecimal.
	Seed string `json:"seed" doc:"The seed of the top-up's draw, in hexadecimal."`
}

// verify checks and returns the top-up. It must have the given generation, follow the hash before, match its own hash,
// and be drawable.
func (d *DisclosedTopUp) verify(c hongbao.Campaign, generation int, before string) (t TopUp, err error) {
	dec := json.NewDecoder(bytes.NewReader([]byte(d.Canonical)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t); err != nil {
		return t, hongbao.Errorf(hongbao.ClassConflict, "generation %d can't be read: %w", generation, err)
	}
	if string(t.Canonical()) != d.Canonical || t.Campaign != c.ID || t.Generation != generation || t.Before != before {
		return t, hongbao.Errorf(hongbao.ClassConflict,
			"generation %d is not in canonical form, belongs to a campaign other than "+
				"%.80q, or does not follow the previous generation", generation, c.ID)
	}
	if t.Seed, err = ParseSeed(d.Seed); err != nil {
		return t, hongbao.Errorf(hongbao.ClassConflict, "generation %d: %w", generation, err)
	}
	if want := t.Commit(); want != d.Hash {
		return t, hongbao.Errorf(hongbao.ClassConflict, "the hash of generation %d is %.80q, but its text and seed give %s: "+
			"one of the three was changed", generation, d.Hash, want)
	}
	if err := t.Check(c); err != nil {
		return t, hongbao.Errorf(hongbao.ClassConflict, "generation %d: %w", generation, err)
	}
	return t, nil
}
