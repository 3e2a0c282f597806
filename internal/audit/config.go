package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/stream"
)

// Ledger is what the audit asks of the ledger.
type Ledger interface {
	// EachGrant calls fn for every grant of a campaign until fn fails. A grant must come as often as it was paid.
	EachGrant(ctx context.Context, campaign string, fn func(hongbao.Grant) error) error
	// Summary tells of every campaign, and what the ledger finds wrong with itself.
	Summary(ctx context.Context) (Summary, error)
	// SealedSeqs gives the seqs of the grants of a sealed campaign, by shard.
	SealedSeqs(ctx context.Context, campaign string) (map[int][]stream.SeqRange, error)
	// EachQuarantined calls fn for every grant in quarantine until fn fails.
	EachQuarantined(ctx context.Context, fn func(Quarantined) error) error
}

// Summary is the ledger at a glance.
type Summary struct {
	Campaigns []LedgerCampaign
	// Problems are what the ledger found when it compared itself with itself; one sentence each.
	Problems []string
}

// LedgerCampaign is what the ledger holds of one campaign, all of one instant.
type LedgerCampaign struct {
	ID                string
	Currency          string
	Funded            hongbao.Amount
	Granted, Refunded hongbao.Amount // the campaign's own counts
	Open              hongbao.Amount // the balance of its pool
	Grants            int64
	// Closed: what nobody got went back; nothing can be granted any more, and the campaign may have left Redis.
	Closed bool
	// CloseShard and CloseSeq name the close that the refund is based on; set if Closed. CloseSeq is 0 if there was none,
	// since Redis had lost something of the campaign: then By and Why say who ended it from the ledger alone.
	CloseShard int
	CloseSeq   int64
	By, Why    string
	// Codes: its packets have codes.
	Codes bool
	// Sealed: it was audited after its refund, and its grants need not be read again.
	Sealed bool
}

// ended says who ended a campaign from the ledger alone, and why.
func (l *LedgerCampaign) ended() string {
	return fmt.Sprintf("Redis had lost something of the campaign, and %.128s ended it from the ledger: %.200q", l.By,
		l.Why)
}

// Quarantined is a grant that the ledger did not pay because it contradicts something.
type Quarantined struct {
	ID     int64
	Reason string
	Grant  hongbao.Grant
	// Resolution is what a person decided; empty while nobody has. A decided one is no difference.
	Resolution string
}

// Topic is the topic that the publisher writes to.
type Topic interface {
	// Each calls fn for every grant in the topic up to its present end, until fn fails. fn may be called by several
	// goroutines at once.
	Each(ctx context.Context, fn func(partition int, offset int64, g hongbao.Grant) error) (TopicScan, error)
}

// TopicScan is what Each passed over.
type TopicScan struct {
	// Starts has the first offset that each partition's log still holds; nil if nothing has expired. Grants of a partition
	// that begins above 0 may have expired: those before the first one seen of their shard are not judged.
	Starts []int64
	// Foreign counts records that are not this deployment's.
	Foreign int64
	// Malformed counts records that claim to be this deployment's grants and can't be read; FirstMalformed is the first
	// error, with its place.
	Malformed      int64
	FirstMalformed error
}

// Plan tells what a packet holds by the campaign's plan; false if there is no such packet.
type Plan interface {
	Amount(ctx context.Context, campaign string, packet int64) (hongbao.Amount, bool, error)
}

// Config of an Auditor. Ledger, Topic, Plan and Codes may be absent (nil): then what they would tell is left out, and
// the report says so.
type Config struct {
	Redis redis.UniversalClient
	Space *shards.Layout
	// Ledger and the name of its consumer group.
	Ledger      Ledger
	LedgerGroup string
	// Remote, if a balance system of somebody else pays what the ledger records. LedgerGroup is the name of its consumer
	// group.
	Remote *Remote
	// Topic and the name of its consumer group.
	Topic      Topic
	TopicGroup string
	Plan       Plan
	// Codes gives the ledger's codes of up to n packets after a number, in their order; nil for no comparison with them.
	Codes func(ctx context.Context, campaign string, after int64, n int) ([]string, error)
	// MaxListed bounds how many differences of one kind are named; all are counted. 1 to 100,000.
	MaxListed int
}

func (c *Config) check() error {
	var errs []error
	if err := c.Remote.check(); err != nil {
		errs = append(errs, err)
	}
	if c.Remote != nil && c.Ledger == nil {
		errs = append(errs, errors.New("a Remote without a Ledger: what it credits is recorded there"))
	}
	if c.Redis == nil || c.Space == nil {
		errs = append(errs, errors.New("Redis and Space are required"))
	}
	if err := hongbao.CheckCampaignID(c.LedgerGroup); c.Ledger != nil && err != nil {
		errs = append(errs, fmt.Errorf("LedgerGroup %q: %w", c.LedgerGroup, err))
	}
	if err := hongbao.CheckCampaignID(c.TopicGroup); c.Topic != nil && err != nil {
		errs = append(errs, fmt.Errorf("TopicGroup %q: %w", c.TopicGroup, err))
	}
	if c.Ledger != nil && c.Topic != nil && c.LedgerGroup == c.TopicGroup {
		errs = append(errs, fmt.Errorf("LedgerGroup and TopicGroup are both %q: each sink has a group of its own",
			c.LedgerGroup))
	}
	if c.MaxListed < 1 || c.MaxListed > 100_000 {
		errs = append(errs, fmt.Errorf("MaxListed is %d: want 1 to 100,000", c.MaxListed))
	}
	if len(errs) == 0 {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "audit: %w", errors.Join(errs...))
}

// MaxWait bounds Options.Wait.
const MaxWait = 24 * time.Hour

// Options of one audit.
type Options struct {
	// Wait is how long to wait at most until every consumer group has finished everything, 0 to 24 h. When it is over
	// the audit goes on with what is in flight.
	Wait time.Duration
	// Campaigns are those to audit, sealed or not; none means all. With some the checks of whole shards (seqs without a
	// gap, the stream) are left out.
	Campaigns []string
}

func (o *Options) check() error {
	var errs []error
	if o.Wait < 0 || o.Wait > MaxWait {
		errs = append(errs, fmt.Errorf("Wait is %s: want 0 to 24h", o.Wait))
	}
	for _, id := range o.Campaigns {
		if err := hongbao.CheckCampaignID(id); err != nil {
			errs = append(errs, fmt.Errorf("campaign %.80q: %w", id, err))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "audit: %w", errors.Join(errs...))
}
