package hongbao

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Grab is a user's request for a packet of a campaign.
type Grab struct {
	// Campaign is the id of the campaign, see CheckCampaignID.
	Campaign string
	// User is the id of the user, see CheckID.
	User string
	// RequestID identifies the grab. A repeated grab with the same id gets exactly the same receipt. The id is
	// optional if users may get one packet each, and required if they may get more.
	RequestID string
	// Trace is a W3C traceparent that travels with the grant; empty for none.
	Trace string
	// Facts are further properties of the grab by which the campaign's limits count, such as the device or the
	// channel.
	Facts map[string]string
}

// Outcome is the result of a grab. A final outcome other than OutcomeGranted is a refusal, which is a value and not an
// error. An outcome that is not final means that nothing was decided. OutcomeAlreadyGranted means that the user has
// packets already; the answer has their receipts.
type Outcome string

// The outcomes. OutcomeBusy, OutcomeFrozen and OutcomeRefilling are not final: nothing was decided, and the caller
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
	// OutcomeRefilling: packets are just being added to the campaign.
	OutcomeRefilling Outcome = "refilling"
)

// Outcomes returns all outcomes, in the order in which reports list them.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeGranted, OutcomeAlreadyGranted, OutcomeLimitReached, OutcomeSoldOut, OutcomeNotStarted, OutcomeEnded,
		OutcomePaused, OutcomeUnknownCampaign,
		OutcomeBusy, OutcomeFrozen, OutcomeRefilling,
	}
}

// Final reports whether the outcome is a decision. Never show an outcome that is not final as a refusal.
func (o Outcome) Final() bool {
	switch o {
	case OutcomeBusy, OutcomeFrozen, OutcomeRefilling:
		return false
	default:
		return true
	}
}

// Receipt is a stored grant. A repeated grab gets the same receipt.
type Receipt struct {
	Packet    int64     `json:"packet"`
	Amount    Amount    `json:"amount"`
	Shard     int       `json:"shard"`
	Seq       int64     `json:"seq"`
	Time      time.Time `json:"time"`
	RequestID string    `json:"request_id,omitempty"`
	// Code is the coupon code; empty in a campaign without codes. It is a secret of the user, so never log it.
	Code string `json:"code,omitempty"`
}

// EventID returns the id of the grant's event, "<shard>-<seq>", as in the topic.
func (r *Receipt) EventID() string { return eventID(r.Shard, r.Seq) }

// LimitHit is the limit that refused a grab.
type LimitHit struct {
	Limit Limit `json:"limit"`
	// Resets is the end of the limit's period; zero for a limit per campaign, which never resets.
	Resets time.Time `json:"resets,omitzero"`
}

// Answer is the answer to a grab.
type Answer struct {
	Outcome Outcome `json:"outcome"`
	// Receipts has one receipt for OutcomeGranted, and all receipts of the user for OutcomeAlreadyGranted.
	Receipts []Receipt `json:"receipts,omitempty"`
	// Limit is only set for OutcomeLimitReached.
	Limit *LimitHit `json:"limit,omitempty"`
	// Starts is when the campaign opens; only set for OutcomeNotStarted.
	Starts time.Time `json:"starts,omitzero"`
	// Time is when the grab was decided, by the clock of Redis. If the producer answers sold_out or frozen without
	// Redis, it is the local time.
	Time time.Time `json:"time"`
	// Currency is the ISO 4217 code of the amounts in Receipts. It is empty without receipts, and for coupons without
	// a value.
	Currency string `json:"currency,omitempty"`
}

// Limits of ids. Every store relies on them, and an id is checked before it becomes part of a key.
const (
	MaxIDLength       = 128
	maxCampaignLength = 64
	maxFactNameLength = 32
	MaxFacts          = 8
)

var errEmptyID = errors.New("it is empty")

// CheckID returns an error unless the id has 1 to 128 bytes of printable ASCII without spaces. Ids of users and
// requests and the values of facts must be such ids. The id "-" is not allowed, because it means an empty field in a
// stream entry.
func CheckID(id string) error {
	if id == "" {
		return errEmptyID
	}
	if len(id) > MaxIDLength {
		return fmt.Errorf("the id has %d bytes; at most %d are allowed", len(id), MaxIDLength)
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

// CheckCampaignID returns an error unless the id has 1 to 64 of the characters a-z, 0-9, "-" and "_", and begins with
// a letter.
func CheckCampaignID(id string) error {
	return checkName(id, maxCampaignLength)
}

// CheckFactName returns an error unless the name is valid: at most 32 of the characters of a campaign id, and not
// "user".
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
		return fmt.Errorf("the name has %d bytes; at most %d are allowed", len(id), most)
	}
	if id[0] < 'a' || id[0] > 'z' {
		return errors.New("the first character must be a letter a to z")
	}
	if i := strings.IndexFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
	}); i >= 0 {
		return fmt.Errorf("byte %d is %#02x: only a-z, 0-9, - and _ are allowed", i, id[i])
	}
	return nil
}

// Check returns all mistakes in the grab as one ClassPermanent error. It does not check facts: only the producer knows
// by which facts the campaign's limits count.
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
	return Errorf(ClassPermanent, "invalid grab, nothing happened: %w", errors.Join(errs...))
}
