package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Ledger is the part of *ledger.Ledger and of books.Books that the audit reads.
type Ledger interface {
	// EachTotals calls fn for every campaign until fn fails.
	EachTotals(ctx context.Context, fn func(*books.Totals) error) error
	// EachGrant calls fn for every grant of a campaign until fn fails. If the ledger paid a packet twice, it calls fn
	// for both rows.
	EachGrant(ctx context.Context, campaign string, fn func(hongbao.Grant) error) error
	// SealedSeqs returns the seqs of the grants of a sealed campaign, by shard.
	SealedSeqs(ctx context.Context, campaign string) (map[int][]stream.SeqRange, error)
	// EachQuarantined calls fn for each grant in quarantine, resolved or not.
	EachQuarantined(ctx context.Context, fn func(*model.Quarantined)) error
	// CheckConservation checks that the ledger's grants, transfers and accounts agree. CheckEveryAccount does so without
	// the bases of accounts. CheckCredits checks the credits of clients.
	CheckConservation(ctx context.Context) ([]books.Difference, error)
	CheckEveryAccount(ctx context.Context) ([]books.Difference, error)
	CheckCredits(ctx context.Context) ([]books.Difference, error)
}

// Topic is the topic that the publisher writes to.
type Topic interface {
	// Each calls fn for every grant in the topic up to the end that the topic has at the call. It begins at the First
	// offsets of the bases, one for each partition; without bases it begins at the start of the log. It stops if fn fails.
	// It may call fn concurrently.
	Each(ctx context.Context, bases []model.TopicBase, fn func(partition int, offset int64,
		g hongbao.Grant) error) (TopicScan, error)
}

// TopicScan says what Each skipped.
type TopicScan struct {
	// Since has the time since which each partition has kept every record; nil if nothing has expired. Earlier grants
	// may have expired, so the audit does not judge them in the topic.
	Since []time.Time
	// Next has the offset after the last record of each partition.
	Next []int64
	// Foreign counts records of other deployments.
	Foreign int64
	// Malformed counts records that claim to be this deployment's grants and can't be read. FirstMalformed is the error
	// of the first such record, with its position.
	Malformed      int64
	FirstMalformed error
}

// Plan returns the planned amounts.
type Plan interface {
	// Amount returns the amount that the campaign's plan gives a packet; false if there is no such packet.
	Amount(ctx context.Context, campaign string, packet int64) (hongbao.Amount, bool, error)
}

// Config configures an audit. Ledger, Topic, Plan and Codes may be nil. Then the audit leaves out their checks, and the
// report says so.
type Config struct {
	Store *store.Store
	// Ledger is the ledger, and LedgerGroup is its consumer group.
	Ledger      Ledger
	LedgerGroup string
	// Remote is set if an external balance system pays the grants that the ledger records. The ledger's group also
	// delivers to it.
	Remote *Remote
	// Topic is the topic, and TopicGroup is its consumer group.
	Topic      Topic
	TopicGroup string
	// Owed returns what a group owes on each shard; nil if nothing is recorded. The audit does not judge in a sink what its
	// group does not owe.
	Owed func(ctx context.Context, group string) ([]stream.Owed, error)
	// Bases say where to begin in the topic. They are used in an audit of all campaigns that is not Full.
	Bases []model.TopicBase
	Plan  Plan
	// Codes returns the ledger's codes of up to n packets after the given one, in the packets' order. If it is nil, the
	// audit does not compare codes with the ledger.
	Codes func(ctx context.Context, campaign string, after int64, n int) ([]string, error)
	// AboveLimit returns how many packets of a campaign a person has granted to each user above the campaign's limit. If
	// it is nil, there are none.
	AboveLimit func(ctx context.Context, campaign string) (map[string]int64, error)
	// Acknowledged are the differences that a person has acknowledged and that have not expired.
	Acknowledged []model.Acknowledgement
	// Unread are other sinks of the deployment, which can't be read back. The audit does not judge them, and says so.
	Unread []string
	// Step, if not nil, is called at the beginning of each step of the audit.
	Step func(what string)
	// MaxListed is how many differences of one kind the report lists at most, 1 to 100,000. It counts all.
	MaxListed int
}

func (c *Config) check() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(c.Store != nil, "Store is required")
	need(c.Remote == nil || c.Remote.Concurrency >= 1 && c.Remote.Concurrency <= 10_000,
		"the remote's Concurrency is out of bounds: want 1 to 10,000")
	need(c.Remote == nil || c.Ledger != nil, "a Remote without a Ledger: the ledger records what the remote credits")
	err := hongbao.CheckCampaignID(c.LedgerGroup)
	need(c.Ledger == nil || err == nil, "LedgerGroup %q: %w", c.LedgerGroup, err)
	err = hongbao.CheckCampaignID(c.TopicGroup)
	need(c.Topic == nil || err == nil, "TopicGroup %q: %w", c.TopicGroup, err)
	need(c.Ledger == nil || c.Topic == nil || c.LedgerGroup != c.TopicGroup,
		"LedgerGroup and TopicGroup are both %q: each sink needs its own group", c.LedgerGroup)
	need(c.MaxListed >= 1 && c.MaxListed <= 100_000, "MaxListed is %d: want 1 to 100,000", c.MaxListed)
	return errors.Join(errs...)
}

// MaxWait bounds Options.Wait.
const MaxWait = 24 * time.Hour

// Options configures one audit.
type Options struct {
	// Wait is the longest time to wait until every consumer group has finished everything, 0 to 24 h. The audit then
	// counts the rest as in flight.
	Wait time.Duration
	// Campaigns are the campaigns to audit, sealed or not; none means all. If set, the audit leaves out the checks of
	// whole shards: seqs without a gap, and the stream.
	Campaigns []string
	// Full makes the audit ignore seals and bases: it reads all grants that the ledger still has, every account, and the
	// whole topic.
	Full bool
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
	return errors.Join(errs...)
}
