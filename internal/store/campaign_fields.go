package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// CampaignFields is a campaign's hash on one of its shards. A field has its zero value if the hash lacks it, if it can't
// be read, or if the reader did not ask for it. So a reader calls Need or Readable for the fields that it uses.
type CampaignFields struct {
	// State is empty if the shard does not have the campaign.
	State string
	// Hash is the hash of the first plan, or StubHash. Revision changes with each top-up and each restore.
	Hash, Revision string
	Spec           string // the specification in canonical form
	Name, Kind     string
	Currency       string // empty for none
	Durability     hongbao.Durability
	FactNames      string // with commas between them
	Codes          bool
	Lost           bool // see LostField
	From, To       time.Time

	// Packets and Total are those of the whole campaign; the other numbers are those of this place.
	Packets      int64
	Total        hongbao.Amount
	Loaded       int64
	LoadedAmount hongbao.Amount
	// Granted and GrantedAmount are in the hash only after the campaign was closed; Shard.CampaignFields derives them.
	Granted       int64
	GrantedAmount hongbao.Amount
	PerUser       int64 // limit of packets for a user; a person may have granted more
	AboveLimit    int64 // packets above the limit

	// A campaign on one shard has none of the fields up to ShareAmount, and one without a top-up none of the others.
	Places, Place     int64
	Walk              string // version of the order in which users try the places
	Share, Base       int64
	ShareAmount       hongbao.Amount
	Generation, Dealt int64 // the newest announced generation, and the newest complete one

	CloseSeq int64
	ClosedAt time.Time

	// Withheld has the packets that restores have withheld. WithheldLast is the last event for which one did. WithholdNext
	// is how many packets are withheld once a top-up that Redis has lost is dealt again.
	Withheld     PacketSum
	WithheldLast int64
	WithholdNext nextWithheld

	PauseBy, PauseWhy string
	PauseAt           time.Time

	campaign string
	counts   map[string]string // the fields that count finished grants, see Finished
	has      map[string]error  // by name of a field in the hash: why it can't be read, or nil
}

// PacketSum is a number of packets and the sum of their amounts.
type PacketSum struct {
	Packets int64
	Amount  hongbao.Amount
}

// The fields that packages other than this one, or several readers, name.
const (
	placesField        = "places"
	grantedField       = "granted"
	grantedAmountField = "granted_amount"
	withheldField      = "withheld"
)

// campaignSchema says where each field of the hash belongs.
var campaignSchema = map[string]func(f *CampaignFields) any{
	"state":            func(f *CampaignFields) any { return &f.State },
	"hash":             func(f *CampaignFields) any { return &f.Hash },
	"revision":         func(f *CampaignFields) any { return &f.Revision },
	"spec":             func(f *CampaignFields) any { return &f.Spec },
	"name":             func(f *CampaignFields) any { return &f.Name },
	"kind":             func(f *CampaignFields) any { return &f.Kind },
	"currency":         func(f *CampaignFields) any { return &f.Currency },
	"durability":       func(f *CampaignFields) any { return &f.Durability },
	"fact_names":       func(f *CampaignFields) any { return &f.FactNames },
	CodesField:         func(f *CampaignFields) any { return &f.Codes },
	LostField:          func(f *CampaignFields) any { return &f.Lost },
	"from":             func(f *CampaignFields) any { return &f.From },
	"to":               func(f *CampaignFields) any { return &f.To },
	"packets":          func(f *CampaignFields) any { return &f.Packets },
	"total":            func(f *CampaignFields) any { return &f.Total },
	"loaded":           func(f *CampaignFields) any { return &f.Loaded },
	"loaded_amount":    func(f *CampaignFields) any { return &f.LoadedAmount },
	grantedField:       func(f *CampaignFields) any { return &f.Granted },
	grantedAmountField: func(f *CampaignFields) any { return &f.GrantedAmount },
	"user_campaign":    func(f *CampaignFields) any { return &f.PerUser },
	"above_limit":      func(f *CampaignFields) any { return &f.AboveLimit },
	placesField:        func(f *CampaignFields) any { return &f.Places },
	"place":            func(f *CampaignFields) any { return &f.Place },
	"walk":             func(f *CampaignFields) any { return &f.Walk },
	"share":            func(f *CampaignFields) any { return &f.Share },
	"share_amount":     func(f *CampaignFields) any { return &f.ShareAmount },
	"base":             func(f *CampaignFields) any { return &f.Base },
	"generation":       func(f *CampaignFields) any { return &f.Generation },
	"dealt":            func(f *CampaignFields) any { return &f.Dealt },
	"close_seq":        func(f *CampaignFields) any { return &f.CloseSeq },
	"closed_at":        func(f *CampaignFields) any { return &f.ClosedAt },
	withheldField:      func(f *CampaignFields) any { return &f.Withheld },
	"withheld_last":    func(f *CampaignFields) any { return &f.WithheldLast },
	"withhold_next":    func(f *CampaignFields) any { return &f.WithholdNext },
	"pause_by":         func(f *CampaignFields) any { return &f.PauseBy },
	"pause_why":        func(f *CampaignFields) any { return &f.PauseWhy },
	"pause_at":         func(f *CampaignFields) any { return &f.PauseAt },
}

// parseFields parses the fields of a campaign's hash. It ignores fields that it does not know.
func parseFields(campaign string, texts map[string]string) *CampaignFields {
	f := &CampaignFields{campaign: campaign, counts: map[string]string{}, has: map[string]error{}}
	for name, text := range texts {
		f.parse(name, text)
	}
	return f
}

func (f *CampaignFields) parse(name, text string) {
	if to, known := campaignSchema[name]; known {
		f.has[name] = set(to(f), text)
	} else if isCount(name) {
		f.counts[name] = text
	}
}

// set parses the text of a field. If it returns an error, it leaves the field as it is.
func set(to any, text string) error {
	switch to := to.(type) {
	case *string:
		*to = text
	case *hongbao.Durability:
		*to = hongbao.Durability(text)
	case *bool:
		*to = text == "1"
	case *PacketSum:
		packets, amount, err := twoNumbers(text)
		if err != nil {
			return err
		}
		*to = PacketSum{packets, hongbao.Amount(amount)}
	case *nextWithheld:
		first, _, _ := strings.Cut(text, " ")
		return setNumber(first, func(n int64) { *to = nextWithheld(n) })
	case *time.Time:
		return setNumber(text, func(n int64) { *to = time.UnixMilli(n).UTC() })
	case *hongbao.Amount:
		return setNumber(text, func(n int64) { *to = hongbao.Amount(n) })
	case *int64:
		return setNumber(text, func(n int64) { *to = n })
	default:
		panic(fmt.Sprintf("store: a field of a campaign is a %T", to))
	}
	return nil
}

// nextWithheld is the first number of the field withhold_next; see lua/withheld.lua.
type nextWithheld int64

func setNumber(text string, set func(n int64)) error {
	n, err := parseDigits(text)
	if err == nil {
		set(n)
	}
	return err
}

// Exists reports whether the hash has any of the fields that were read.
func (f *CampaignFields) Exists() bool { return len(f.has) > 0 }

// Has reports whether the hash has a field.
func (f *CampaignFields) Has(field string) bool {
	_, found := f.has[field]
	return found
}

// Readable returns an error, of ClassBroken, if any of these fields is in the hash and can't be read.
func (f *CampaignFields) Readable(fields ...string) error {
	var errs []error
	for _, name := range fields {
		if err := f.has[name]; err != nil {
			errs = append(errs, fmt.Errorf("field %s: %w", name, err))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis: %w", f.campaign, errors.Join(errs...))
}

// Need is Readable for fields that must be in the hash.
func (f *CampaignFields) Need(fields ...string) error {
	for _, name := range fields {
		if !f.Has(name) {
			return errors.Join(f.Readable(fields...), hongbao.Errorf(hongbao.ClassBroken,
				"campaign %s in Redis: field %s is not there", f.campaign, name))
		}
	}
	return f.Readable(fields...)
}

// askFields queues the read of some fields of a campaign's hash in a pipeline. The function that it returns parses the
// reply.
func (k Keys) askFields(ctx context.Context, pipe redis.Cmdable, campaign string, names ...string) func() (*CampaignFields,
	error) {
	answer := pipe.HMGet(ctx, k.Campaign(campaign), names...)
	return func() (*CampaignFields, error) {
		values, err := answer.Result()
		if err != nil {
			return nil, fmt.Errorf("read campaign %s: %w", campaign, Classify(err))
		}
		f := parseFields(campaign, nil)
		for i, name := range names {
			if text, found := values[i].(string); found {
				f.parse(name, text)
			}
		}
		return f, nil
	}
}

// fields reads some fields of a campaign's hash.
func (p Place) fields(ctx context.Context, names ...string) (*CampaignFields, error) {
	return p.Keys.askFields(ctx, p.rdb, p.Campaign, names...)()
}
