package consumer

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// Config configures a Consumer. Start from DefaultConfig and set the fields that have no default; New rejects a zero
// Config.
type Config struct {
	// Deployment is where the events are. Its log gets the alarms.
	Deployment *deployment.Deployment
	// Group is the name of the sink. The consumer group and the done bits have the same name.
	Group string
	// Debts has the events that each group owes to its sink. It is nil if nothing is recorded: then a group owes every
	// event of a shard, also those that were deleted before the group was created.
	Debts Debts
	// Consumer is the name of this worker in the group. Each start of a worker needs a new name. If it is empty, New makes
	// one.
	Consumer string
	Handler  hongbao.Handler
	// Middleware wraps the Handler, for example with tracing, logging or a time limit (Timeout). The first middleware
	// is the outermost. Every call of the Handler passes through it, including retries while the sink is down.
	Middleware []func(hongbao.Handler) hongbao.Handler

	// Approximate number of grants in one call of a sink.
	BatchGrants int `knob:"consumer.batch_grants" default:"2000" want:"1 to 100_000 grants"`
	// GrantsPerSecond limits the grants that all workers of the group together deliver in a second; 0 means no limit.
	// A rate that an operator has set in Redis (`hongbao sink limit`) takes precedence.
	GrantsPerSecond int `want:"0 to 1_000_000_000 grants"`
	// MaxCalls limits the concurrent calls of the Handler; 0 means one call per shard.
	MaxCalls int `want:"0 to 1024 calls"`
	// The most entries that one read or one reclaim takes.
	MaxEntries int `knob:"consumer.max_entries" default:"1000" want:"1 to 10_000 entries"`
	// How long a read waits for new entries.
	Block time.Duration `knob:"consumer.block" default:"1s" want:"10ms to 5s"`
	// Time between two searches of a worker for parked entries, and for entries of dead workers.
	Poll time.Duration `knob:"consumer.poll" default:"500ms" want:"10ms to 1m"`
	// How long an entry belongs to a worker that does not renew its lease. The worker renews the lease three times in
	// this period.
	Lease time.Duration `knob:"consumer.lease" default:"30s" want:"100ms to 1h"`
	// How long one call of a sink may take. After this time the worker no longer renews the leases of the entries in the
	// call.
	HandleTimeout time.Duration `knob:"consumer.handle_timeout" default:"2m" want:"10ms to 1h"`
	// How long a stopping worker waits for its running calls. With 0s it gives their entries to the other workers at
	// once. This time should be shorter than the stop timeout of the service manager.
	DrainTimeout time.Duration `knob:"consumer.drain_timeout" default:"20s" want:"0s to 1h"`
	// Number of failed attempts after which a grant becomes a dead letter. An outage of the whole sink uses up no
	// attempt, and neither does waiting for another worker's claim.
	//
	// The minimum is two: one attempt together with other entries, and one with this entry alone. So a grant that
	// crashes its workers does not make dead letters of the grants beside it.
	MaxAttempts int64 `knob:"consumer.max_attempts" default:"12" want:"2 to 1000"`
	// Number of dead letters with the same reason within a minute after which a worker pauses their campaign for the
	// sink. With 0 workers never pause a campaign for this reason. Letters of an undecidable batch do not count.
	//
	// `hongbao sink resume SINK --campaign ID` ends the pause, also for a group of your own. Two reasons are the same if they
	// differ only in the user and in words with digits.
	PauseLetters int64 `knob:"consumer.pause_letters" default:"1000" want:"0 to 1_000_000 letters"`
	// The wait after the first failed attempt. The wait doubles after each further failure.
	Backoff time.Duration `knob:"consumer.backoff" default:"1s" want:"1ms to 24h"`
	// The longest wait between two attempts.
	MaxBackoff time.Duration `knob:"consumer.max_backoff" default:"10m" want:"1ms to 24h"`
}

// DefaultConfig returns a Config with all defaults. Deployment, Group and Handler have none.
func DefaultConfig() Config { return knob.Defaults[Config]() }

func (c *Config) check() error {
	errs := knob.Check(c)
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Deployment == nil || c.Handler == nil {
		bad("Deployment and Handler are required")
	}
	if slices.ContainsFunc(c.Middleware, func(m func(hongbao.Handler) hongbao.Handler) bool { return m == nil }) {
		bad("Middleware has a nil function")
	}
	if err := hongbao.CheckCampaignID(c.Group); err != nil {
		bad("group %q: %w", c.Group, err)
	}
	if err := hongbao.CheckID(c.Consumer); err != nil || len(c.Consumer) > 0 && c.Consumer[0] == '_' {
		bad(`consumer %q: want 1 to 128 printable ASCII characters without spaces, not beginning with "_"`, c.Consumer)
	}
	if c.MaxBackoff < c.Backoff {
		bad("MaxBackoff is %s: want at least Backoff, %s", c.MaxBackoff, c.Backoff)
	}
	if c.Deployment != nil {
		errs = append(errs, c.Deployment.Store().CheckReads(c.Block)...)
	}
	if len(errs) > 0 {
		return fmt.Errorf("consumer: %w", errors.Join(errs...))
	}
	return nil
}
