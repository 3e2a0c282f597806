package campaign

import (
	"crypto/rand"
	"math/big"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// codesPerPacket is how many different codes a pattern must allow for each packet. A guess then hits a code of the
// campaign with a probability of at most one in a million.
const codesPerPacket = 1_000_000

// In a pattern, anyDigit and anyLetter stand for a random character of their alphabet. The letters leave out I, L, O
// and U, which look like 1, 0 and V. The other bytes of a pattern are literal: A to Z, a to z, 0 to 9, "-", "_" and
// ".".
const (
	anyDigit  = '#'
	anyLetter = '?'

	digits  = "0123456789"
	letters = "ABCDEFGHJKMNPQRSTVWXYZ"
)

// alphabet returns the characters for which a byte of a pattern stands, or "" for a literal byte.
func alphabet(b byte) string {
	switch b {
	case anyDigit:
		return digits
	case anyLetter:
		return letters
	}
	return ""
}

func checkCodes(c *hongbao.Campaign, p *problems) {
	if c.Codes == nil || !p.fine("codes") {
		return
	}
	if p.fine("kind") && c.Kind != hongbao.KindCoupon {
		p.add("codes", "not_allowed_here", "only coupons have codes; leave them out, or set kind to coupon")
	}
	pattern, file := c.Codes.Pattern, c.Codes.File
	if p.fine("codes.pattern", "codes.file") && (pattern == "") == (file == "") {
		p.add("codes", "codes_not_one", "give either a pattern or a file")
	}
	if file != "" && (len(file) > 1000 || strings.ContainsFunc(file, func(r rune) bool { return r < ' ' || r == 0x7f })) {
		p.add("codes.file", "code_file_invalid", "%.80q is not the name of a file", file)
	}
	if pattern != "" {
		checkPattern(c, p)
	}
}

func checkPattern(c *hongbao.Campaign, p *problems) {
	pattern := c.Codes.Pattern
	if len(pattern) > hongbao.MaxCodeLength {
		p.add("codes.pattern", "code_pattern_invalid", "the pattern has %d bytes; give at most %d", len(pattern),
			hongbao.MaxCodeLength)
	}
	for i := range len(pattern) {
		if b := pattern[i]; alphabet(b) == "" && !literal(b) {
			p.add("codes.pattern", "code_pattern_invalid",
				"byte %d is %#02x; use # for a digit, ? for a letter, or the literals A-Z, a-z, 0-9, -, _ and .", i, b)
		}
	}
	if !p.fine("codes.pattern", "packets") {
		return
	}
	space, want := patternSpace(pattern), new(big.Int).Mul(big.NewInt(c.Packets), big.NewInt(codesPerPacket))
	if space.Cmp(want) < 0 {
		p.add("codes.pattern", "code_space_too_small",
			"the pattern allows %s codes, but %d packets need at least %s so that no code can be "+
				"guessed; add # (10 times as many) or ? (%d times)",
			space, c.Packets, want, len(letters))
	}
}

func literal(b byte) bool {
	return b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '-' || b == '_' || b == '.'
}

// patternSpace returns how many different codes a pattern allows.
func patternSpace(pattern string) *big.Int {
	n := big.NewInt(1)
	for i := range len(pattern) {
		if a := alphabet(pattern[i]); a != "" {
			n.Mul(n, big.NewInt(int64(len(a))))
		}
	}
	return n
}

// DrawCodes draws n random codes of a valid pattern. All codes are equally likely and independent, so a code may occur
// twice or may have been drawn before. The caller must draw again if the ledger rejects duplicates.
func DrawCodes(pattern string, n int) []string {
	d := codeDraw{}
	codes := make([]string, n)
	text := make([]byte, len(pattern))
	for i := range codes {
		for at := range len(pattern) {
			if text[at] = pattern[at]; alphabet(pattern[at]) != "" {
				text[at] = d.one(alphabet(pattern[at]))
			}
		}
		codes[i] = string(text)
	}
	return codes
}

// codeDraw is a buffered source of random bytes.
type codeDraw struct {
	block [4096]byte
	left  []byte
}

// one draws a byte of the alphabet. It rejects random bytes above the largest multiple of the alphabet's length,
// because they would make the first characters more likely.
func (d *codeDraw) one(alphabet string) byte {
	for {
		if len(d.left) == 0 {
			rand.Read(d.block[:]) // never fails: without randomness it ends the process
			d.left = d.block[:]
		}
		b := int(d.left[0])
		d.left = d.left[1:]
		if b < 256/len(alphabet)*len(alphabet) {
			return alphabet[b%len(alphabet)]
		}
	}
}
