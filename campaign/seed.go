package campaign

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/hongbao-project/hongbao"
)

// Seed is the randomness of a plan. It must stay secret until the campaign is closed, because it lets anyone compute
// every packet. When printed, a Seed shows a placeholder; Hex returns its value.
type Seed [32]byte

// NewSeed returns a random seed from the operating system.
func NewSeed() Seed {
	var s Seed
	rand.Read(s[:]) // never fails: without randomness it ends the process
	return s
}

// ParseSeed parses the result of Hex. Its error does not repeat the text, which may be a secret.
func ParseSeed(text string) (Seed, error) {
	var s Seed
	if len(text) != hex.EncodedLen(len(s)) {
		return Seed{}, hongbao.Errorf(hongbao.ClassPermanent, "a seed has %d hexadecimal digits, but this text has %d bytes",
			hex.EncodedLen(len(s)), len(text))
	}
	if _, err := hex.Decode(s[:], []byte(text)); err != nil {
		return Seed{}, hongbao.Errorf(hongbao.ClassPermanent, "a seed has hexadecimal digits only")
	}
	return s, nil
}

// Hex returns the seed in hexadecimal, the form in which it is stored and published.
func (s Seed) Hex() string { return hex.EncodeToString(s[:]) }

// String keeps the seed out of logs.
func (s Seed) String() string { return "seed(secret)" }

// GoString keeps the seed out of logs.
func (s Seed) GoString() string { return s.String() }

// commitTag makes the hash of a commitment different from all other hashes (domain separation).
const commitTag = "hongbao.commit.v1\n"

// Commit returns the commitment that is published before the start: the hash of the specification and the seed, in
// hexadecimal. The hash reveals nothing about the seed. No other seed or specification with the same hash can be
// found.
func Commit(c hongbao.Campaign, seed Seed) string {
	h := sha256.New()
	h.Write([]byte(commitTag))
	h.Write(Canonical(c))
	h.Write([]byte{'\n'})
	h.Write(seed[:])
	return hex.EncodeToString(h.Sum(nil))
}

// Verify returns nil if hash is the commitment to the campaign and the seed, and a Conflict otherwise.
func Verify(c hongbao.Campaign, seed Seed, hash string) error {
	if want := Commit(c, seed); hash != want {
		return hongbao.Errorf(hongbao.ClassConflict,
			"the commitment of campaign %.80q is %.80q, but its specification and seed give %s: one of the three was changed",
			c.ID, hash, want)
	}
	return nil
}

// streamTag makes the hashes of the stream different from all other hashes (domain separation).
const streamTag = "hongbao.plan.v1"

// stream is the plan's random number generator: SHA-256 in counter mode, see docs/campaigns.md.
type stream struct {
	block [len(streamTag) + len(Seed{}) + 8]byte // one block of SHA-256 with its padding
	next  uint64
	hash  [sha256.Size]byte
	used  int // bytes of hash
}

func newStream(seed Seed) *stream {
	s := &stream{used: sha256.Size}
	copy(s.block[:], streamTag)
	copy(s.block[len(streamTag):], seed[:])
	return s
}

func (s *stream) word() uint64 {
	if s.used == sha256.Size {
		binary.BigEndian.PutUint64(s.block[len(s.block)-8:], s.next)
		s.hash = sha256.Sum256(s.block[:])
		s.next++
		s.used = 0
	}
	w := binary.BigEndian.Uint64(s.hash[s.used:])
	s.used += 8
	return w
}

// below returns a uniformly random number from 0 to n-1. It rejects words above the largest multiple of n, because
// they would make small numbers more likely.
func (s *stream) below(n uint64) uint64 {
	for {
		w := s.word()
		r := w % n
		if w-r <= -n {
			return r
		}
	}
}
