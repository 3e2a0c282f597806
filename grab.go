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
	// User is who asks, see CheckID.
	User string
	// RequestID makes a repeat of this grab recognisable: the same id gets the same receipt, word for word. It is
	// optional where a user may have one packet, and required where he may have more.
	RequestID string
	// Trace is a W3C traceparent that travels with the grant; empty for none.
	Trace string
	// Facts are what the campaign's limits count by besides the user: device, channel and so on.
	Facts map[string]string
}

// Outcome is the answer to a grab. Every final outcome but OutcomeGranted is a refusal: a value, not an error. What is
// not final is no answer yet. OutcomeAlreadyGranted says that the user has packets: see the answer's receipts.
type Outcome string

// The outcomes. OutcomeBusy, OutcomeFrozen and OutcomeRefilling are undecided: nothing was refused, and the same grab
// is to be repeated.
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
	// OutcomeRefilling: packets that were added to the campaign are on their way.
	OutcomeRefilling Outcome = "refilling"
)

// Outcomes lists every outcome, in the order in which reports show them.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeGranted, OutcomeAlreadyGranted, OutcomeLimitReached, OutcomeSoldOut, OutcomeNotStarted, OutcomeEnded,
		OutcomePaused, OutcomeUnknownCampaign,
		OutcomeBusy, OutcomeFrozen, OutcomeRefilling,
	}
}

// Final tells whether the outcome is decided. An outcome that is not final must never be shown as a refusal.
func (o Outcome) Final() bool {
	switch o {
	case OutcomeBusy, OutcomeFrozen, OutcomeRefilling:
		return false
	default:
		return true
	}
}

// Receipt is the stored grant that a repeated grab gets again.
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

// LimitHit says which limit refused a grab, and when it counts again.
type LimitHit struct {
	Limit Limit `json:"limit"`
	// Resets is when the limit's period ends; zero for a limit per campaign, which never does.
	Resets time.Time `json:"resets,omitzero"`
}

// Answer is what a grab gets.
type Answer struct {
	Outcome Outcome `json:"outcome"`
	// Receipts has the one receipt of OutcomeGranted, or all that the user holds for OutcomeAlreadyGranted.
	Receipts []Receipt `json:"receipts,omitempty"`
	// Limit is set for OutcomeLimitReached only.
	Limit *LimitHit `json:"limit,omitempty"`
	// Starts is when the campaign opens; set for OutcomeNotStarted only.
	Starts time.Time `json:"starts,omitzero"`
	// Time is the Redis time of the decision; the caller's own for a sold_out that the producer knows by itself.
	Time time.Time `json:"time"`
	// Currency is what the receipts' amounts are in, as ISO 4217; empty without receipts, and for a coupon without a value.
	Currency string `json:"currency,omitempty"`
}

// Bounds of ids. They hold in every store, and an id is checked before it becomes part of a key.
const (
	MaxIDLength       = 128
	maxCampaignLength = 64
	maxFactNameLength = 32
	MaxFacts          = 8
)

var errEmptyID = errors.New("it is empty")

// CheckID tells what is wrong with a user id, a request id or a fact's value: 1 to 128 bytes of printable ASCII
// without spaces, and not a lone "-", which stands for an empty field in an entry.
func CheckID(id string) error {
	if id == "" {
		return errEmptyID
	}
	if len(id) > MaxIDLength {
		return fmt.Errorf("it has %d bytes, at most %d are allowed", len(id), MaxIDLength)
	}
	if id == "-" {
		return errors.New(`a lone "-" stands for "none" and can't be an id`)
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return fmt.Errorf("byte %d is %#02x: only printable ASCII without spaces is allowed", i, id[i])
		}
	}
	return nil
}

// CheckCampaignID tells what is wrong with a campaign id: 1 to 64 of a-z, 0-9, "-" and "_", beginning with a letter.
func CheckCampaignID(id string) error {
	return checkName(id, maxCampaignLength)
}

// CheckFactName tells what is wrong with a fact's name: as a campaign id, at most 32 long, and not "user".
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

// Check tells every thing that is wrong with the grab, as a ClassPermanent error, before any store is touched. Facts
// are judged where the campaign's limits are known: those that no limit counts by are nobody's business.
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
