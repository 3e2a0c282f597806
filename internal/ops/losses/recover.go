package losses

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/internal/store"
)

// recoverer returns a Recoverer, and opens the ledger and the topic unless the arguments exclude them. The caller must
// call stop.
func (a Losses) recoverer(ctx context.Context, withoutTopic, withoutLedger bool) (r *recovery.Recoverer, stop func(), err error) {
	cfg := recovery.Config{Store: a.app.Store(), Sinks: a.app.Config.Deployment.Sinks, Log: a.app.Log(), Margin: a.app.Config.Work.RestoreMargin,
		Check: func(s *store.Server) error { return a.app.CheckServer(s, hongbao.DurabilityFast) }}
	if !withoutLedger {
		if err := a.app.Ledger().Ready(ctx); err != nil {
			return nil, nil, err
		}
		cfg.Ledger, cfg.Journal = a.app.Ledger(), a.app.Access()
	}
	stop = func() {}
	if a.app.Has(configs.SinkKafka) && !withoutTopic {
		topic, err := a.app.OpenTopic(ctx)
		if err != nil {
			return nil, nil, app.OfTopic(err)
		}
		cfg.Topic, cfg.TopicSink, stop = recoveredTopic{topic}, configs.SinkKafka, topic.Close
	}
	return recovery.New(cfg), stop, nil
}

// recoveredTopic lets a Recoverer read the topic.
type recoveredTopic struct{ *publish.Log }

// HighestSeq implements recovery.Topic.
func (t recoveredTopic) HighestSeq(ctx context.Context, shard int, since time.Time) (int64, error) {
	seq, err := t.Log.HighestSeq(ctx, shard, since)
	if err != nil {
		err = app.OfTopic(err)
	}
	return seq, err
}

// OpenFrozenShards restores what frozen shards have lost, and opens them, until ctx ends. If it can't restore
// everything, the shard stays frozen until a person decides.
func (a Losses) OpenFrozenShards(ctx context.Context, frozen <-chan int) error {
	policy := retry.Backoff(time.Second, 30*time.Second, 0)
	for {
		r, stop, err := a.recoverer(ctx, false, false)
		if err == nil {
			defer stop()
			return r.Run(ctx, frozen)
		}
		var misused app.UsageError
		if errors.As(err, &misused) {
			a.app.Log().Warn("this worker can't open frozen shards, so other workers have to", zap.Error(err))
			<-ctx.Done()
			return nil
		}
		if hongbao.ClassOf(err) == hongbao.ClassBroken && ctx.Err() == nil {
			a.app.Log().Warn("this worker can't open frozen shards yet; it tries again", zap.Error(err))
		}
		if !retry.Pause(ctx, policy.NextBackOff()) {
			return nil
		}
	}
}

// Acceptance is a person's decision to open a shard without the data that Redis has lost.
type Acceptance struct {
	Shard int
	stream.Decision
	// Expect is the Digest of the shard in the report that the person saw.
	Expect string
}

// RecoverOptions are the options of Recover.
type RecoverOptions struct {
	// Accept is the loss to accept. If it is nil, Recover changes nothing.
	Accept *Acceptance
	// WithoutTopic excludes Kafka, which may be down. Events that only the topic has then count as lost.
	WithoutTopic bool
	// WithoutLedger excludes the ledger, which may be down. Recover then opens a shard only if it has lost nothing that
	// the other servers have. Workers deliver nothing from that shard until the ledger has recorded the opening.
	WithoutLedger bool
}

// Recovery is the state of the shards.
type Recovery struct {
	Shards []*ShardLoss `json:"shards"`
	// Accepted are the most recent losses that people have accepted.
	Accepted []model.AcceptedLoss `json:"accepted"`
	// Restored are the most recent openings that restored lost data.
	Restored []model.Restored `json:"restored,omitempty"`
	// Undecided counts the withheld packets that no person has decided. It is nil without the ledger.
	Undecided *int64 `json:"undecided_packets,omitempty"`
}

// ShardLoss is the state of a shard. If the shard has lost data, it also says what opening it would cost.
type ShardLoss struct {
	*recovery.ShardReport
	// Effects are the consequences for the campaigns that stay frozen.
	Effects []Effect `json:"effects,omitempty"`
	// Unpaid are the lost grants that are in the topic but not in the ledger.
	Unpaid []payments.Unpaid `json:"unpaid,omitempty"`
	// Unknown counts the lost events that are neither paid by the ledger nor in the topic. Each may be a grant that its
	// user saw. Grants in quarantine or pending, closes, and seqs that an earlier opening skipped are counted as well.
	Unknown int64 `json:"unknown_events,omitempty"`
	// Digest identifies this report. It is empty if there is no loss to accept. Opened says that this call has accepted
	// the loss.
	Digest string `json:"digest,omitempty"`
	Opened bool   `json:"opened,omitempty"`
	// TopicUnread means that Kafka did not answer, so the frozen shard may have lost more than the report says.
	TopicUnread bool `json:"topic_unread,omitempty"`
}

// Effect is the money of a campaign that stays frozen. `hongbao campaign refund-lost` returns Left to the sponsor.
type Effect struct {
	Campaign   string         `json:"campaign"`
	Currency   string         `json:"currency,omitempty"`
	Packets    int64          `json:"packets"`
	Funded     hongbao.Amount `json:"funded_amount"`
	Paid       int64          `json:"paid"`
	PaidAmount hongbao.Amount `json:"paid_amount"`
	Left       int64          `json:"left"`
	LeftAmount hongbao.Amount `json:"left_amount"`
}

// openRecoverer opens Redis, and the ledger and the topic unless the options exclude them.
func (a Losses) openRecoverer(ctx context.Context, opts *RecoverOptions) (r *recovery.Recoverer, stop func(), err error) {
	err = a.app.ReachRedis(ctx)
	if !opts.WithoutLedger {
		err = errors.Join(err, a.app.Ledger().Ready(ctx))
	}
	if err != nil {
		return nil, nil, err
	}
	return a.recoverer(ctx, opts.WithoutTopic, opts.WithoutLedger)
}

// Restored lists the most recent openings that restored lost data, by shard, the newest first.
func (a Losses) Restored(ctx context.Context) ([]model.Restored, error) {
	return recovery.New(recovery.Config{Store: a.app.Store(), Ledger: a.app.Ledger()}).Restored(ctx)
}

// Recover reports what Redis has lost. With an Acceptance it also opens that shard. If only Kafka is down, Recover
// returns what it knows without the topic together with the error, and no loss can be accepted by that report.
func (a Losses) Recover(ctx context.Context, opts RecoverOptions) (*Recovery, error) {
	out, err := a.recover(ctx, opts)
	if unread := (app.TopicError{}); !errors.As(err, &unread) || !hongbao.IsOutage(err) {
		return out, err
	}
	if opts.Accept != nil {
		return nil, fmt.Errorf("%w; `hongbao recover --without kafka` leaves the topic out", err)
	}
	opts.WithoutTopic = true
	out, other := a.recover(ctx, opts)
	if out == nil {
		return nil, errors.Join(err, other)
	}
	for _, s := range out.Shards {
		s.TopicUnread, s.Digest = s.Digest != "", ""
	}
	return out, fmt.Errorf("%w. Kafka does not answer, so this report is incomplete: some lost wins may be only in the topic. It "+
		"has no digest, so no loss can be accepted by it. Bring Kafka back and run `hongbao recover` again; if the topic is "+
		"lost, `hongbao recover --without kafka` leaves it out", err)
}

func (a Losses) recover(ctx context.Context, opts RecoverOptions) (*Recovery, error) {
	r, stop, err := a.openRecoverer(ctx, &opts)
	if err != nil {
		return nil, err
	}
	defer stop()
	reading := a.app.LongCall(ctx, "recover", 0)
	defer reading.End()
	reading.Step("recover: asking what Redis, the ledger, the topic and other processes know")
	reports, err := r.Reports(ctx)
	if err != nil {
		return nil, err
	}
	a.app.AcceptRedis() // the ledger may be excluded: the journal's entry then waits in Redis
	out, lost := &Recovery{}, 0
	for _, v := range reports {
		s := &ShardLoss{ShardReport: v}
		if v.Frozen && (v.Lost() || opts.WithoutTopic || opts.WithoutLedger) {
			reading.Step(fmt.Sprintf("recover: searching the lost grants of shard %d", v.Shard))
			if err := a.cost(ctx, r, s, &opts); err != nil {
				return nil, err
			}
			lost++
		}
		out.Shards = append(out.Shards, s)
	}
	if opts.Accept != nil {
		if err := a.accept(ctx, r, out, opts.Accept); err != nil {
			return nil, err
		}
	}
	if out.Accepted, err = r.Accepted(ctx); err != nil {
		return nil, err
	}
	if out.Restored, err = r.Restored(ctx); err != nil {
		return nil, err
	}
	if !opts.WithoutLedger {
		n, err := a.UndecidedHoles(ctx)
		if err != nil {
			return nil, err
		}
		out.Undecided = &n
	}
	return out, out.remainsFrozen(lost, &opts)
}

// remainsFrozen returns an error if shards stay frozen. lost is the number of those that have lost data.
func (r *Recovery) remainsFrozen(lost int, opts *RecoverOptions) error {
	switch refused := slices.IndexFunc(r.Shards, func(s *ShardLoss) bool { return s.Refused != "" }); {
	case lost > 0 && opts.Accept == nil && opts.WithoutLedger:
		return app.NeedsAttention("%s %s frozen while the ledger is down. To open a shard that has lost nothing, run "+
			"`hongbao recover --without ledger --accept-loss --shard N --expect DIGEST --by NAME --why TEXT`",
			plural.Of(lost, "shard"), plural.Verb(lost, "stays", "stay"))
	case lost > 0 && opts.Accept == nil:
		return app.NeedsAttention("%s %s. Stop all writes to this Redis and keep its files. If "+
			"there is a newer append-only file, or a replica that has more, start Redis from that; otherwise `hongbao recover "+
			"--accept-loss --shard N --expect DIGEST --by NAME --why TEXT` opens a shard without the lost data",
			plural.Of(lost, "shard"), plural.Verb(lost, "has lost data and stays frozen", "have lost data and stay frozen"))
	case refused >= 0:
		return app.NeedsAttention("shard %d stays frozen until the settings of its Redis are correct", refused)
	}
	return nil
}

// cost fills in what opening a shard without its lost data would cost.
func (a Losses) cost(ctx context.Context, r *recovery.Recoverer, s *ShardLoss, opts *RecoverOptions) (err error) {
	if opts.WithoutLedger {
		s.Unknown = max(s.Known()-max(s.Redis, 0), 0)
		s.Digest, err = payments.DigestOf(s.loss())
		return err
	}
	for _, d := range s.Campaigns {
		c, _, err := a.app.Ledger().Campaign(ctx, d.Campaign)
		if err != nil {
			return err
		}
		s.Effects = append(s.Effects, Effect{d.Campaign, c.Spec.Currency, c.Packets, c.Funded, c.Grants, c.Granted,
			c.Packets - c.Grants, c.Funded - c.Granted})
	}
	gone := stream.SeqRange{First: max(s.Redis, 0) + 1, Last: s.Known()}
	s.Unknown = max(gone.Last-gone.First+1, 0)
	err = a.app.Ledger().EachGrantBySeq(ctx, s.Shard, gone, func(hongbao.Grant) error {
		s.Unknown--
		return nil
	})
	if err != nil {
		return err
	}
	if !opts.WithoutTopic {
		last, err := r.LastEntry(ctx, s.Shard)
		if err != nil {
			return err
		}
		s.Unpaid, err = payments.Of(a.app).Unpaid(ctx, last, func(g *hongbao.Grant) bool { return g.Shard == s.Shard && g.Seq > s.Redis })
		if err != nil {
			return err
		}
	}
	for i := range s.Unpaid {
		s.Unknown -= s.Unpaid[i].Grants
	}
	s.Unknown = max(s.Unknown, 0)
	s.Digest, err = payments.DigestOf(s.loss())
	return err
}

// loss returns the part of the report that a person accepts, and from which the digest is computed. It excludes what
// may change meanwhile: the money of campaigns that other shards still grant, and the campaigns that can be loaded
// again. It also excludes the ledger's epoch, which rises when a worker tries to restore the shard. It includes the
// epoch of Redis, which rises only when the shard is opened.
func (s *ShardLoss) loss() any {
	return struct {
		Shard                                                  int
		Redis, Ledger, Topic, Seen, SeenIn, Late, Opened, More int64
		Campaigns                                              []recovery.Doubt
		Unpaid                                                 []payments.Unpaid
	}{s.Shard, s.Redis, s.Ledger, s.Topic, s.Seen, s.SeenIn, s.Late, s.Opening, s.Unknown, s.Campaigns, s.Unpaid}
}

// accept opens the shard that a person names, unless its report has changed since.
func (a Losses) accept(ctx context.Context, r *recovery.Recoverer, out *Recovery, word *Acceptance) error {
	i := slices.IndexFunc(out.Shards, func(s *ShardLoss) bool { return s.Shard == word.Shard })
	if i < 0 {
		return app.Usage("--shard %d: the deployment has shards 0 to %d", word.Shard, len(out.Shards)-1)
	}
	s := out.Shards[i]
	switch {
	case !s.Frozen:
		return app.Usage("--shard %d: the shard is open, there is no loss to accept", word.Shard)
	case s.Digest == "":
		return app.Usage("--shard %d: the shard has lost nothing, a worker opens it", word.Shard)
	}
	if err := payments.Expected(s.Digest, word.Expect); err != nil {
		return err
	}
	e := app.About(ctx, access.AcceptLoss, "")
	e.Details = map[string]any{"shard": s.Shard, "by": word.By, "why": word.Why, "digest": s.Digest}
	err := a.app.Recorded(ctx, e, func(ctx context.Context, _ *access.Entry) error {
		return r.Accept(ctx, s.ShardReport, word.Decision)
	})
	if err != nil {
		return err
	}
	s.Opened = true
	a.app.Log().Warn("a person accepted the loss of a shard", zap.Int("shard", s.Shard), zap.String("by", word.By),
		zap.String("why", word.Why), zap.Stringer("lost", s.ShardReport))
	return nil
}
