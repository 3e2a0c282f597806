package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/configs"
	"github.com/hongbao-project/hongbao/internal/replay"
	"github.com/hongbao-project/hongbao/publisher"
)

// replayFlags are those of `hongbao replay`.
type replayFlags struct {
	to, seqs, from, until, dead string
	shard                       int
	filter                      replay.Filter
	missing, dryRun             bool
	rate                        float64
	patience                    time.Duration
}

func replayCmd() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use: "replay NAME", Short: "Deliver grants once more: to the ledger (or the remote), to the topic, or to another topic",
		Long: "Delivers the grants that the filters pick, from the stream while it is kept and from the ledger after that. What users were told\n" +
			"of, and whose entries were deleted before a worker read them, comes from the receipts (balance, kafka). A replay has a name and\n" +
			"remembers under it what it has delivered: stopped or killed anywhere, the same command goes on, and nothing is pushed twice.\n\n" +
			"  --to balance       the ledger settles what it does not have; it ignores the rest. A remote (settlement.kind) is asked again, by its keys\n" +
			"  --to kafka         the topic gets what its sink has not finished yet; with --missing what it has finished and the topic has not\n" +
			"  --to topic:OTHER   another topic, with as many partitions, gets all of it\n\n" +
			"Begin with --dry-run: it counts and writes nothing.",
		Example: "  hongbao replay for-audit --to topic:grants-copy --campaign spring-rain --dry-run\n" +
			"  hongbao replay for-audit --to topic:grants-copy --campaign spring-rain --rate 5000\n" +
			"  hongbao replay mend-topic --to kafka --missing\n  hongbao replay mend-ledger --to balance --shard 0 --seq 1-100000",
		Args: exactly(1, "one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args[0]); err != nil {
				return err
			}
			return with(cmd, needs{redis: true}, func(d *deps) error {
				return d.alone(cmd, &f, func(ctx context.Context) error { return d.replay(ctx, cmd, args[0], &f) })
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.to, "to", "", "where to: balance, kafka, or topic:OTHER")
	flags.StringVar(&f.filter.Campaign, "campaign", "", "only grants of this campaign")
	flags.StringVar(&f.filter.User, "user", "", "only grants of this user")
	flags.StringVar(&f.from, "from-time", "", "only grants decided at or after this time, as 2026-02-17T20:00:00Z")
	flags.StringVar(&f.until, "to-time", "", "only grants decided before this time")
	flags.IntVar(&f.shard, "shard", 0, "only grants of this shard")
	flags.StringVar(&f.seqs, "seq", "", "only these seqs of the shard, as 1-100; needs --shard where there are several")
	flags.StringVar(&f.dead, "dead", "", "the dead letters of this sink, which stay: hongbao dead requeue ends them")
	flags.BoolVar(&f.missing, "missing", false, "with --to kafka: read the topic first, and push what the sink has finished and the topic has not")
	flags.BoolVar(&f.dryRun, "dry-run", false, "count only, write nothing")
	flags.Float64Var(&f.rate, "rate", 0, "grants per second at most; 0 for no bound")
	flags.DurationVar(&f.patience, "patience", time.Minute, "how long to try again while the target is out of reach")
	return cmd
}

// check reads the flags, and refuses what makes no sense before anything is opened.
func (f *replayFlags) check(cmd *cobra.Command, name string) error {
	if err := hongbao.CheckCampaignID(replay.DoneSink(name)); err != nil {
		return usage("NAME %.80q, which is kept as %.80q: %w", name, replay.DoneSink(name), err)
	}
	topic, other := strings.CutPrefix(f.to, "topic:")
	switch {
	case f.to != configs.SinkBalance && f.to != configs.SinkKafka && (!other || topic == ""):
		return usage("--to %.80q: want balance, kafka or topic:NAME (see `%s --help`)", f.to, cmd.CommandPath())
	case f.missing && f.to != configs.SinkKafka:
		return usage("--missing goes with --to kafka: the ledger finds by itself what it does not have")
	case f.missing && f.dead != "":
		return usage("--missing and --dead exclude each other")
	case f.dead != "" && f.dead == f.to:
		return usage("--dead %s --to %s would deliver nothing, they count as finished there: use `hongbao dead requeue --sink %s`", f.dead, f.to, f.dead)
	case f.rate < 0:
		return usage("--rate %v: give 0 or more grants per second", f.rate)
	case f.patience < 0:
		return usage("--patience %s: give 0s or more", f.patience)
	}
	if cmd.Flags().Changed("shard") {
		f.filter.Shard = &f.shard
	}
	if f.filter.Campaign != "" {
		if err := checkCampaigns(f.filter.Campaign); err != nil {
			return err
		}
	}
	return f.bounds()
}

// bounds reads the bounds of time and seq.
func (f *replayFlags) bounds() (err error) {
	if f.filter.From, err = parseTime("--from-time", f.from); err != nil {
		return err
	}
	if f.filter.To, err = parseTime("--to-time", f.until); err != nil {
		return err
	}
	if f.seqs == "" {
		return nil
	}
	first, last, ok := strings.Cut(f.seqs, "-")
	a, err1 := strconv.ParseInt(first, 10, 64)
	b, err2 := strconv.ParseInt(last, 10, 64)
	if f.filter.Seqs = (hongbao.SeqRange{First: a, Last: b}); !ok || err1 != nil || err2 != nil || a < 1 || b < a {
		return usage("--seq %.60q: want first-last, as 1-100", f.seqs)
	}
	return nil
}

func parseTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, usage("%s %.60q: want a time as 2026-02-17T20:00:00Z or 2026-02-17T20:00:00+08:00", flag, text)
	}
	return t.UTC(), nil
}

// alone sees to it that only one process at a time looks for what is missing in the topic and pushes it: two that had both looked before the
// other pushed would each push it.
func (d *deps) alone(cmd *cobra.Command, f *replayFlags, do func(context.Context) error) error {
	if !f.missing || f.dryRun {
		return do(cmd.Context())
	}
	locks, err := d.locks()
	if err != nil {
		return err
	}
	d.log.Info("waiting for other replays with --missing, if there are any")
	return locks.Do(cmd.Context(), "replay-missing", do)
}

func (d *deps) replay(ctx context.Context, cmd *cobra.Command, name string, f *replayFlags) error {
	if f.dead != "" && !slices.Contains(d.cfg.Deployment.Sinks, f.dead) {
		return usage("--dead: %.40q is not among deployment.sinks (%s)", f.dead, strings.Join(d.cfg.Deployment.Sinks, ", "))
	}
	cfg := replay.Config{
		Redis: d.redis, Space: d.space, Name: name, Target: f.to, DoneSink: replay.DoneSink(name), BatchGrants: d.cfg.Publisher.BatchGrants,
		Rate: f.rate, Parallel: min(d.space.Len(), 8), Patience: f.patience,
	}
	if err := errors.Join(d.replayTo(ctx, &cfg, f), d.someHas(ctx, f.filter.Campaign)); err != nil {
		return err
	}
	var b bar
	cfg.Progress = func(r *replay.Report) {
		if b.mine == nil && !wantsJSON(cmd) {
			b = newBar("replay "+r.Name, r.Events)
		}
		b.set(min(r.Looked, r.Events))
	}
	r, err := replay.New(cfg)
	if err != nil {
		return err
	}
	report, err := r.Run(ctx, replay.Options{Filter: f.filter, Dead: f.dead, DryRun: f.dryRun})
	b.end()
	if report == nil {
		return err
	}
	if err == nil && report.Failed > 0 {
		err = found("the replay is not finished: mend what the report names, then run it again")
	}
	return errors.Join(printAnswer(cmd, report, report.Write), err)
}

// someHas refuses a campaign that neither the ledger nor Redis has: a mistyped one would look like a replay that is finished.
func (d *deps) someHas(ctx context.Context, id string) error {
	if id == "" || d.ledger == nil {
		return nil
	}
	if _, found, err := d.ledger.Campaign(ctx, id); err != nil || found {
		return err
	}
	store, err := d.store()
	if err != nil {
		return err
	}
	if _, found, err := store.Status(ctx, id); err != nil || found {
		return err
	}
	return errNoCampaign(id)
}

// replayTo sets where a replay goes: the handler, and the done bits that say what is there.
func (d *deps) replayTo(ctx context.Context, cfg *replay.Config, f *replayFlags) error {
	if f.to == configs.SinkBalance {
		h, err := d.balanceAgain(ctx)
		if err != nil {
			return err
		}
		cfg.Handler, cfg.Ledger, cfg.Settles, cfg.Sink = h, d.ledger, true, configs.SinkBalance
		return nil
	}
	entries := &replay.Entries{Redis: d.redis, Space: d.space}
	if slices.Contains(d.cfg.Deployment.Sinks, configs.SinkBalance) {
		if err := d.openLedger(ctx); err != nil {
			return err
		}
		cfg.Ledger, entries.Ledger = d.ledger, d.ledger
	}
	topic, claims := d.cfg.Kafka.Topic, d.cfg.ClaimsConfig()
	if other, ok := strings.CutPrefix(f.to, "topic:"); ok {
		if other == topic {
			return usage("--to topic:%s is this deployment's own topic: say --to kafka, so that no event gets a second copy", topic)
		}
		topic, claims.Sink, claims.Trimmed = other, cfg.DoneSink, false
	} else if f.missing {
		cfg.Target += ", what is missing there"
		claims.Done = cfg.DoneSink
	} else {
		cfg.DoneSink, cfg.Sink = configs.SinkKafka, configs.SinkKafka
	}
	var lost *replay.Lost
	if f.missing {
		var err error
		if lost, err = replay.FindLost(ctx, d.redis, d.space, configs.SinkKafka); err != nil {
			return err
		}
		cfg.Only = lost.Picks
	}
	p, err := d.publisherTo(ctx, topic, claims, entries)
	if err != nil {
		return err
	}
	cfg.Handler, cfg.Marks = p, true
	if f.missing {
		return tellLost(ctx, lost, p, d.space.Len())
	}
	return nil
}

// balanceAgain is what a replay to balance goes to.
func (d *deps) balanceAgain(ctx context.Context) (hongbao.Handler, error) {
	if d.cfg.Settlement.Kind == configs.SettleRemote {
		return d.atRemote(ctx, true, told{})
	}
	return d.handler(ctx, configs.SinkBalance)
}

// tellLost reads the topic.
func tellLost(ctx context.Context, lost *replay.Lost, p *publisher.Publisher, shards int) error {
	scan, err := p.Scan(ctx, nil, func(_ int, _ int64, e publisher.Event) error {
		lost.Has(&e.Grant)
		return nil
	})
	if err != nil {
		return fmt.Errorf("find what is missing in the topic: %w", err)
	}
	for shard := range shards {
		if scan.Starts[p.Partition(shard)] > 0 {
			lost.Expired(shard)
		}
	}
	return nil
}
