package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Parts of a key's text: hb_<id>_<secret>.
const (
	KeyPrefix   = "hb_"
	keyIDLen    = 12
	secretBytes = 32
)

// Limits of a key's fields.
const (
	maxNote      = 200
	maxCampaigns = 100
	maxSponsors  = 100
)

// KeyTime is how long a key is valid if its creator names no end.
const KeyTime = 90 * 24 * time.Hour

// EndsSoon is the time before the end of a key from which people are warned.
const EndsSoon = 7 * 24 * time.Hour

// Key is an API key as the ledger stores it, without the secret.
type Key struct {
	ID   string `json:"id"`
	Role Role   `json:"role"`
	// Campaigns are campaign ids, or prefixes that end with *. Empty means all campaigns and the whole deployment.
	Campaigns []string `json:"campaigns"`
	// Client is the client of the balance API that the key belongs to. Only keys of the roles client and accountant
	// have one.
	Client string `json:"client,omitempty"`
	Spending
	// Hash is the SHA-256 of the secret in hex. OldHash is the SHA-256 of the previous secret, which is valid until
	// OldUntil.
	Hash     string    `json:"-"`
	OldHash  string    `json:"-"`
	OldUntil time.Time `json:"-"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires,omitzero"` // zero: never
	Revoked  time.Time `json:"revoked,omitzero"` // zero: not revoked
	Note     string    `json:"note,omitempty"`
}

// NewKey returns a key with a random id and secret, and the text that its owner sends. The text itself is not stored
// anywhere.
func NewKey(role Role, campaigns []string) (key Key, text string) {
	key = Key{ID: strings.ToLower(rand.Text()[:keyIDLen]), Role: role, Campaigns: campaigns}
	text, key.Hash = NewSecret(key.ID)
	return key, text
}

// NewSecret generates a secret for a key. It returns the text that the owner sends, and the hash to store.
func NewSecret(id string) (text, hash string) {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	secret := hex.EncodeToString(b[:])
	return KeyPrefix + id + "_" + secret, Hash(secret)
}

// Hash returns the stored hash of a secret.
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// split splits a key's text into id and secret. ok is false if the text does not have the form of a key.
func split(text string) (id, secret string, ok bool) {
	rest, ok := strings.CutPrefix(text, KeyPrefix)
	id, secret, has := strings.Cut(rest, "_")
	return id, secret, ok && has && len(id) == keyIDLen && len(secret) == 2*secretBytes
}

// live reports whether the key is neither revoked nor expired.
func (k *Key) live(now time.Time) bool {
	return k.Revoked.IsZero() && (k.Expires.IsZero() || now.Before(k.Expires))
}

// End returns the time when the key expires, for a person.
func (k *Key) End() string {
	if k.Expires.IsZero() {
		return "never"
	}
	return k.Expires.Format(time.RFC3339)
}

// matches reports whether hash belongs to a valid secret of the key. It takes the same time for every hash.
func (k *Key) matches(hash string, now time.Time) bool {
	is := subtle.ConstantTimeCompare([]byte(hash), []byte(k.Hash))
	was := subtle.ConstantTimeCompare([]byte(hash), []byte(k.OldHash))
	return is == 1 || was == 1 && now.Before(k.OldUntil)
}

// Check returns every reason not to store the key.
func (k *Key) Check(now time.Time) error {
	var errs []error
	if !slices.Contains(Roles(), k.Role) {
		errs = append(errs, fmt.Errorf("role %.40q does not exist: want one of %v", k.Role, Roles()))
	}
	if len(k.Campaigns) > maxCampaigns {
		errs = append(errs, fmt.Errorf("it names %d campaigns: want up to %d; a prefix* stands for many", len(k.Campaigns),
			maxCampaigns))
	}
	for _, c := range k.Campaigns {
		if err := hongbao.CheckCampaignID(strings.TrimSuffix(c, "*")); err != nil && c != "*" {
			errs = append(errs, fmt.Errorf("campaign %.80q: %w; a prefix ends with *", c, err))
		} else if c == "*" {
			errs = append(errs, errors.New("campaign * is not a scope: name no campaign for all of them"))
		}
	}
	errs = append(errs, k.checkClient()...)
	errs = append(errs, k.checkSpending()...)
	if !k.Expires.IsZero() && !k.Expires.After(now) {
		errs = append(errs, fmt.Errorf("it would have expired at %s already", k.Expires.Format(time.RFC3339)))
	}
	if len(k.Note) > maxNote || strings.ContainsFunc(k.Note, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		errs = append(errs, fmt.Errorf("the note is one line of up to %d bytes", maxNote))
	}
	if len(errs) == 0 {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "the API key can't be stored: %w", errors.Join(errs...))
}

// checkClient returns every reason not to store the key because of its client.
func (k *Key) checkClient() (errs []error) {
	if !slices.Contains(bankers, k.Role) {
		if k.Client != "" {
			errs = append(errs, fmt.Errorf("role %.40q has no client: only keys of %v belong to one", k.Role, bankers))
		}
		return errs
	}
	if err := hongbao.CheckID(k.Client); err != nil {
		errs = append(errs, fmt.Errorf("client %.140q of a key of role %s: %w", k.Client, k.Role, err))
	}
	if len(k.Campaigns) > 0 {
		errs = append(errs, fmt.Errorf("a key of role %s has no campaigns: a credit belongs to none", k.Role))
	}
	return errs
}

// Rotation is a new secret for an API key.
type Rotation struct {
	// Hash is the SHA-256 of the new secret. The old secret stays valid during Overlap.
	Hash    string
	Overlap time.Duration
	// Expires is the key's new end, or the zero time for no end. Nil keeps the end.
	Expires *time.Time
}
