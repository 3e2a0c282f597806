package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/operate/delivery"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Config configures a replay.
type Config struct {
	Store *store.Store
	// Ledger has the grants whose entries are trimmed; nil if the deployment has no ledger.
	Ledger Ledger
	// Name identifies the replay in its deployment. A run under the same name continues where the last run ended.
	// Target names the destination, which must be the same in all runs under a name.
	Name, Target string
	// Options configures the delivery. All shards share its rate limit.
	delivery.Options
	// DoneSink is the sink whose done bits mark the delivered grants. It is DoneSink(Name), or the target's own sink to
	// deliver only what that sink has not finished. In the second case very old events, whose done bits are deleted,
	// count as delivered.
	DoneSink string
	// Marks reports whether the Handler sets these done bits itself, as the publisher does. Otherwise the replay sets
	// them after the Handler returns.
	Marks bool
	// Settles reports whether the target is the ledger. Then a grant that the ledger already has counts as There, not
	// as Delivered.
	Settles bool
	// Sink, if not empty, is the target's sink. The replay then also delivers grants whose entries were deleted before
	// this sink had finished them. It reads such grants from the receipts, and marks them as done for the sink. It
	// omits the sink's dead letters, waiting and dropped ones: a person decides about them.
	Sink string
	// Read, if not nil, calls has for each grant that the target has got since a time, concurrently. If a shard was opened
	// again since the first run began, Redis may have lost done bits. The replay then does not deliver what the target has.
	Read func(ctx context.Context, since time.Time, has func(*hongbao.Grant)) error
	// Owed, if not nil, has what the target's sink owes, by shard. The replay leaves out other grants, unless the filter
	// names seqs: a person may fill the gap of a sink that was added later.
	Owed []stream.Owed
	// Only, if not nil, selects from the grants that the filter matches. It must be safe for concurrent use.
	Only func(g *hongbao.Grant) bool
	// Parallel is the number of shards that are processed concurrently, 1 to 64.
	Parallel int
	// Progress, if not nil, is called after each step, never concurrently. It must return quickly.
	Progress func(*model.ReplayReport)
}

// DoneSink returns the sink name under which a replay keeps its done bits and claims.
func DoneSink(name string) string { return "replay-" + name }

func (c *Config) check() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(c.Store != nil, "Store is required")
	err := hongbao.CheckCampaignID(DoneSink(c.Name))
	need(c.Name != "" && err == nil, "Name %.80q: after \"replay-\" it must be like a campaign's id: %w", c.Name, err)
	need(c.Target != "", "Target is empty")
	err = hongbao.CheckCampaignID(c.DoneSink)
	need(err == nil, "DoneSink %.80q: %w", c.DoneSink, err)
	err = hongbao.CheckCampaignID(c.Sink)
	need(c.Sink == "" || err == nil, "Sink %.80q: %w", c.Sink, err)
	need(c.Owed == nil || len(c.Owed) == c.Store.Len(), "Owed has %d shards", len(c.Owed))
	need(c.Parallel >= 1 && c.Parallel <= 64, "Parallel is %d: want 1 to 64", c.Parallel)
	if err := errors.Join(append(errs, c.Options.Check())...); err != nil {
		return hongbao.Errorf(hongbao.ClassPermanent, "replay configuration: %w", err)
	}
	return nil
}

// Replay delivers a range of grants again. Run may be called repeatedly, and by several processes concurrently.
type Replay struct{ cfg Config }

// New returns a Replay, or an error that names all problems of the configuration.
func New(cfg Config) (*Replay, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	return &Replay{cfg: cfg}, nil
}

// Options configures one run.
type Options struct {
	Filter Filter
	// Dead is the sink whose dead letters are replayed; if empty, the stream and the ledger are. The letters stay.
	Dead string
	// DryRun only counts, and writes nothing.
	DryRun bool
}

// ErrOtherReplay means that an earlier run under this name had another range or target. The error has ClassConflict.
var ErrOtherReplay = errors.New("replay_exists_with_other_range")

// Covers is the range and target of a replay's name. It is stored as JSON. It has the SHA-256 of the filter's user,
// because Redis keeps it after the end of the replay.
type Covers struct {
	Target string `json:"target"`
	Done   string `json:"done"`
	Dead   string `json:"dead,omitempty"`
	Filter Filter `json:"filter"`
}

// Run processes everything that the replay covers. It stops earlier if ctx ends or it can't continue. It returns a
// report unless the options are invalid or the run can't begin. Run returns no error for grants that could not be
// delivered; they are in the report.
func (r *Replay) Run(ctx context.Context, opts Options) (*model.ReplayReport, error) {
	err := opts.Filter.check(r.cfg.Store.Len())
	if e := hongbao.CheckCampaignID(opts.Dead); opts.Dead != "" && e != nil {
		err = errors.Join(err, fmt.Errorf("dead letters of %.80q: %w", opts.Dead, e))
	}
	if err != nil {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "replay %s: %w", r.cfg.Name, err)
	}
	w := &run{
		Config: &r.cfg, opts: opts, to: delivery.New(r.cfg.Options), letters: deadletter.New(r.cfg.Store),
		source: source{store: r.cfg.Store, ledger: r.cfg.Ledger, page: max(r.cfg.BatchGrants, 1_000),
			receipts: newReceipts(&r.cfg), lost: r.cfg.DoneSink == DoneSink(r.cfg.Name)},
		shard: make([]shardRun, r.cfg.Store.Len()),
		report: model.ReplayReport{
			Name: r.cfg.Name, Target: r.cfg.Target, DryRun: opts.DryRun, Started: time.Now(),
			Last: make([]int64, r.cfg.Store.Len()), Refusals: model.Refusals{Failures: []model.Failure{}},
		},
	}
	w.source.wants, w.source.twins = w.wants, w.source.lost && r.cfg.Ledger != nil && !r.cfg.Settles
	if err := w.begin(ctx); err != nil {
		return nil, fmt.Errorf("replay %s: %w", r.cfg.Name, err)
	}
	err = w.shards(ctx)
	w.report.Seconds = time.Since(w.report.Started).Seconds()
	w.report.Finished = err == nil && w.report.Failed == 0
	if err != nil {
		return &w.report, fmt.Errorf("replay %s: %w; start it again under this name to continue", r.cfg.Name, err)
	}
	return &w.report, nil
}

// run is one run of a replay.
type run struct {
	*Config
	opts    Options
	source  source
	to      *delivery.Deliverer
	letters *deadletter.Letters
	target  *Lost // the grants that the target has, if Redis may have lost their done bits; else nil

	shard []shardRun

	mu     sync.Mutex
	report model.ReplayReport
}

// shardRun is the progress of a run on one shard. One goroutine uses it.
type shardRun struct {
	epoch  int64            // the shard's epoch when the run began
	seqs   stream.SeqRange  // seqs still to process
	aside  deadletter.Aside // the dead letters of the target's sink
	failed bool             // a grant could not be delivered, so the next run continues before it
}

// begin stores what the replay covers, or compares it with what an earlier run has stored. A dry run stores nothing.
func (w *run) begin(ctx context.Context) error {
	text, err := json.Marshal(Covers{w.Target, w.DoneSink, w.opts.Dead, w.opts.Filter.Hashed()})
	if err != nil {
		return hongbao.Errorf(hongbao.ClassPermanent, "encode what the replay covers: %w", err)
	}
	var since time.Time // when the oldest run began on a shard that was opened again
	for shard := range w.Store.Len() {
		if !w.opts.Filter.onShard(shard) {
			continue
		}
		head, err := w.Store.Shard(shard).Head(ctx)
		if err != nil {
			return err
		}
		w.shard[shard].epoch = head.Epoch
		has, err := w.beginShard(ctx, w.at(shard), string(text))
		if err != nil {
			return err
		}
		if has.Covers != string(text) {
			return hongbao.Errorf(hongbao.ClassConflict,
				"%w: its first run had %.1000s, and this run has %s; repeat the first options, or take another name",
				ErrOtherReplay, has.Covers, text)
		}
		w.report.Last[shard] = has.Last
		if has.Epoch < head.Epoch && !has.Begun.IsZero() && (since.IsZero() || has.Begun.Before(since)) {
			since = has.Begun
		}
		if w.opts.Dead == "" {
			if err := w.plan(ctx, shard, &has); err != nil {
				return err
			}
			continue
		}
		n, err := w.Store.Shard(shard).Group(w.opts.Dead).CountLetters(ctx)
		if err != nil {
			return err
		}
		w.report.Events += n
	}
	if w.Read == nil || since.IsZero() {
		return nil
	}
	w.target = newLost(w.Store.Len())
	return w.Read(ctx, since.Add(-stream.ClockSkew), w.target.Has)
}

// plan sets which seqs of a shard this run processes: the seqs in the filter's ranges of seqs and time, from where the
// last run stopped. A replay with Only processes all these seqs in each run, because Only may pick other grants than
// before.
func (w *run) plan(ctx context.Context, shard int, has *store.Replay) error {
	seqs := stream.SeqRange{First: max(1, w.opts.Filter.Seqs.First), Last: has.Last}
	seqs, err := w.source.within(ctx, shard, seqs, w.opts.Filter.From, w.opts.Filter.To)
	if err != nil {
		return err
	}
	w.report.Events += max(0, seqs.Len())
	if next := min(has.Next, seqs.Last+1); next > seqs.First && w.Only == nil {
		w.report.Resumed += next - seqs.First
		w.report.Looked += next - seqs.First
		seqs.First = next
	}
	w.shard[shard].seqs = seqs
	return nil
}

// at returns a shard in the epoch in which the run began there. If the shard opens again, later writes fail.
func (w *run) at(shard int) *store.Shard { return w.Store.Shard(shard).At(w.shard[shard].epoch) }

func (w *run) beginShard(ctx context.Context, k *store.Shard, text string) (store.Replay, error) {
	wanted := w.opts.Filter.Seqs.Last
	if !w.opts.DryRun {
		return k.BeginReplay(ctx, w.Name, text, wanted)
	}
	has, found, err := k.LookUpReplay(ctx, w.Name)
	if err != nil || found {
		return has, err
	}
	last, err := k.LastSeq(ctx)
	if wanted > 0 {
		last = min(last, wanted)
	}
	return store.Replay{Covers: text, Last: last}, err
}

// shards processes the shards, at most Parallel concurrently, until all are done or one fails.
func (w *run) shards(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(w.Parallel)
	for shard := range w.Store.Len() {
		if !w.opts.Filter.onShard(shard) {
			continue
		}
		g.Go(func() error {
			deliver := func(p *part) error { return w.part(ctx, shard, p) }
			var err error
			if w.Sink != "" {
				w.shard[shard].aside, err = w.letters.Aside(ctx, w.Sink, shard)
			}
			switch {
			case err != nil:
			case w.opts.Dead != "":
				err = w.eachLetter(ctx, shard, deliver)
			default:
				err = w.source.each(ctx, shard, w.shard[shard].seqs, deliver)
			}
			if err != nil {
				return err
			}
			return w.noteNext(ctx, shard, 0)
		})
	}
	return g.Wait()
}
