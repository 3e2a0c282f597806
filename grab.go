package hongbao

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Grab is a user's request for a packet of a campaign.
type Grab struct {
	// Campaign is the campaign's id, see CheckCampaignID.
	Campaign string
	// User is the user who asks, see CheckID.
	User string
	// RequestID identifies this grab when it is repeated: the same id gets exactly the same receipt. It is optional
	// where a user may have one packet, and required where a user may have more.
	RequestID string
	// Trace is a W3C traceparent that travels with the grant; empty for none.
	Trace string
	// Facts are the values that the campaign's limits count by besides the user: device, channel and so on.
	Facts map[string]string
}

// Outcome is the answer to a grab. Every final outcome except OutcomeGranted is a refusal: a value, not an error. An
// outcome that is not final decides nothing. OutcomeAlreadyGranted says that the user has packets: see the answer's
// receipts.
type Outcome string

// The outcomes. OutcomeBusy, OutcomeFrozen and OutcomeRefilling are undecided: nothing was refused, and the caller
// should repeat the same grab.
const (
	OutcomeGranted         Outcome = "granted"
	OutcomeAlreadyGranted  Outcome = "already_granted"
	OutcomeLimitReached    Outcome = "limit_reached"
	OutcomeSoldOut         Outcome = "sold_out"
	OutcomeNotStarted      Outcome = "not_started"
	OutcomeEnded           Outcome = "ended"
	OutcomePaused          Outcome = "paused"
	OutcomeUnknownCampaign Outcome = "unknown_campaign"
	OutcomeBusy            Outcome = "busy"
	OutcomeFrozen          Outcome = "frozen"
	// OutcomeRefilling: packets are being added to the campaign.
	OutcomeRefilling Outcome = "refilling"
)

// Outcomes returns every outcome, in the order of reports.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeGranted, OutcomeAlreadyGranted, OutcomeLimitReached, OutcomeSoldOut, OutcomeNotStarted, OutcomeEnded,
		OutcomePaused, OutcomeUnknownCampaign,
		OutcomeBusy, OutcomeFrozen, OutcomeRefilling,
	}
}

// Final reports whether the outcome is decided. An outcome that is not final must never be shown as a refusal.
func (o Outcome) Final() bool {
	switch o {
	case OutcomeBusy, OutcomeFrozen, OutcomeRefilling:
		return false
	default:
		return true
	}
}

// Receipt is a stored grant. A repeated grab gets it again.
type Receipt struct {
	Packet    int64     `json:"packet"`
	Amount    Amount    `json:"amount"`
	Shard     int       `json:"shard"`
	Seq       int64     `json:"seq"`
	Time      time.Time `json:"time"`
	RequestID string    `json:"request_id,omitempty"`
	// Code is the coupon's code; empty in a campaign without codes. It is a secret of the user's: never log it.
	Code string `json:"code,omitempty"`
}

// LimitHit says which limit refused a grab, and when its next period begins.
type LimitHit struct {
	Limit Limit `json:"limit"`
	// Resets is when the limit's period ends; zero for a limit per campaign, whose period never ends.
	Resets time.Time `json:"resets,omitzero"`
}

// Answer is the answer to a grab.
type Answer struct {
	Outcome Outcome `json:"outcome"`
	// Receipts has the one receipt of OutcomeGranted, or all receipts of the user for OutcomeAlreadyGranted.
	Receipts []Receipt `json:"receipts,omitempty"`
	// Limit is set for OutcomeLimitReached only.
	Limit *LimitHit `json:"limit,omitempty"`
	// Starts is when the campaign opens; set for OutcomeNotStarted only.
	Starts time.Time `json:"starts,omitzero"`
	// Time is the Redis time of the decision. For a sold_out that the producer decides without Redis it is the local
	// time.
	Time time.Time `json:"time"`
	// Currency is the ISO 4217 code of the receipts' amounts; empty without receipts, and for a coupon without a
	// value.
	Currency string `json:"currency,omitempty"`
}

// Bounds of ids. They apply in every store, and an id is checked before it becomes part of a key.
const (
	MaxIDLength       = 128
	maxCampaignLength = 64
	maxFactNameLength = 32
	MaxFacts          = 8
)

var errEmptyID = errors.New("it is empty")

// CheckID returns an error if a user id, a request id or a fact's value is not 1 to 128 bytes of printable ASCII
// without spaces. It also refuses a lone "-", which means an empty field in an entry.
func CheckID(id string) error {
	if id == "" {
		return errEmptyID
	}
	if len(id) > MaxIDLength {
		return fmt.Errorf("it has %d bytes, at most %d are allowed", len(id), MaxIDLength)
	}
	if id == "-" {
		return errors.New(`a lone "-" means "none" and can't be an id`)
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return fmt.Errorf("byte %d is %#02x: only printable ASCII without spaces is allowed", i, id[i])
		}
	}
	return nil
}

// CheckCampaignID returns an error if a campaign id is not 1 to 64 of a-z, 0-9, "-" and "_", beginning with a letter.
func CheckCampaignID(id string) error {
	return checkName(id, maxCampaignLength)
}

// CheckFactName returns an error if a fact's name is not valid: the same characters as a campaign id, at most 32, and
// not "user".
func CheckFactName(name string) error {
	if name == ByUser {
		return errors.New(`"user" is who grabs, not a fact of the request`)
	}
	return checkName(name, maxFactNameLength)
}

func checkName(id string, most int) error {
	if id == "" {
		return errEmptyID
	}
	if len(id) > most {
		return fmt.Errorf("it has %d bytes, at most %d are allowed", len(id), most)
	}
	if id[0] < 'a' || id[0] > 'z' {
		return errors.New("it must begin with a letter a to z")
	}
	if i := strings.IndexFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}); i >= 0 {
		return fmt.Errorf("byte %d is %#02x: only a-z, 0-9, - and _ are allowed", i, id[i])
	}
	return nil
}

// Check returns everything that is wrong with the grab as one ClassPermanent error, before any store is asked. The
// producer checks facts, because it knows the campaign's limits. It ignores facts that no limit counts by.
func (g *Grab) Check() error {
	var errs []error
	if err := CheckCampaignID(g.Campaign); err != nil {
		errs = append(errs, fmt.Errorf("campaign %.80q: %w", g.Campaign, err))
	}
	if err := CheckID(g.User); err != nil {
		errs = append(errs, fmt.Errorf("user %.80q: %w", g.User, err))
	}
	if g.RequestID != "" {
		if err := CheckID(g.RequestID); err != nil {
			errs = append(errs, fmt.Errorf("request id %.80q: %w", g.RequestID, err))
		}
	}
	if g.Trace != "" {
		if err := checkTraceparent(g.Trace); err != nil {
			errs = append(errs, fmt.Errorf("traceparent %.80q: %w", g.Trace, err))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return Errorf(ClassPermanent, "grab refused before anything was touched: %w", errors.Join(errs...))
}
