package campaign

import (
	"crypto/rand"
	"math/big"
	"strings"

	"github.com/hongbao-project/hongbao"
)

// codesPerPacket is how many codes a pattern must be able to make for each packet: a guess then hits one of the
// campaign's codes with a chance of at most one in a million.
const codesPerPacket = 1_000_000

// These bytes of a pattern are replaced by random characters of the alphabet behind them. The letters leave out I, L,
// O and U, which are mistaken for 1, 0 and V. Every other byte of a pattern is kept as it is: A to Z, a to z, 0 to 9,
// "-", "_" and ".".
const (
	anyDigit  = '#'
	anyLetter = '?'

	digits  = "0123456789"
	letters = "ABCDEFGHJKMNPQRSTVWXYZ"
)

// alphabet returns the characters that replace a byte of a pattern, or "" for a byte that is kept as it is.
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
		p.add("codes", "not_allowed_here", "only a coupon has codes; leave them out, or set kind to coupon")
	}
	pattern, file := c.Codes.Pattern, c.Codes.File
	if p.fine("codes.pattern", "codes.file") && (pattern == "") == (file == "") {
		p.add("codes", "codes_not_one", "give a pattern or a file, one of the two")
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
		p.add("codes.pattern", "code_pattern_invalid", "it has %d bytes; give at most %d", len(pattern),
			hongbao.MaxCodeLength)
	}
	for i := range len(pattern) {
		if b := pattern[i]; alphabet(b) == "" && !literal(b) {
			p.add("codes.pattern", "code_pattern_invalid",
				"byte %d is %#02x; give # for a digit, ? for a letter, and A-Z, a-z, 0-9, -, _ and . for themselves", i, b)
		}
	}
	if !p.fine("codes.pattern", "packets") {
		return
	}
	space, want := patternSpace(pattern), new(big.Int).Mul(big.NewInt(c.Packets), big.NewInt(codesPerPacket))
	if space.Cmp(want) < 0 {
		p.add("codes.pattern", "code_space_too_small", "it makes %s codes, %d packets need at least %s so that none can be "+
			"guessed; add # (10 times as many) or ? (%d times)",
			space, c.Packets, want, len(letters))
	}
}

func literal(b byte) bool {
	return b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '-' || b == '_' || b == '.'
}

// patternSpace returns how many codes a pattern can make.
func patternSpace(pattern string) *big.Int {
	n := big.NewInt(1)
	for i := range len(pattern) {
		if a := alphabet(pattern[i]); a != "" {
			n.Mul(n, big.NewInt(int64(len(a))))
		}
	}
	return n
}

// DrawCodes draws n codes of a valid pattern from the system's source of randomness. Every code is equally likely and
// independent of all others. Codes may repeat each other or earlier codes. The ledger rejects duplicates, and the
// codes are then drawn again.
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

// codeDraw takes random bytes in blocks.
type codeDraw struct {
	block [4096]byte
	left  []byte
}

// one draws a byte of the alphabet. It rejects random bytes from the last, incomplete run of the alphabet's length,
// which would favour the first characters.
func (d *codeDraw) one(alphabet string) byte {
	for {
		if len(d.left) == 0 {
			rand.Read(d.block[:]) // never fails: it ends the process instead
			d.left = d.block[:]
		}
		b := int(d.left[0])
		d.left = d.left[1:]
		if b < 256/len(alphabet)*len(alphabet) {
			return alphabet[b%len(alphabet)]
		}
	}
}
