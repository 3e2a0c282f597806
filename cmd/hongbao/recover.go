package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/recovery"
)

type recoverFlags struct {
	accept  bool
	by, why string
}

func recoverCmd() *cobra.Command {
	var f recoverFlags
	cmd := &cobra.Command{
		Use: "recover", Short: "Tell what a Redis that went back in time has lost, and open its shards if a person accepts the loss",
		Long: "A shard is frozen when Redis was started anew, another server took over, or Redis went back in time: grabs are answered frozen,\n" +
			"and workers wait. Workers open it by themselves within seconds if nothing was lost. If something was lost, this command tells\n" +
			"what Redis, the ledger, the topic and the callers know. It changes nothing without --accept-loss.\n\n" +
			"With --accept-loss it opens the shards: new grants get event numbers behind everything that anybody knows. Campaigns that Redis\n" +
			"has lost, or of which somebody knows more than Redis, stay frozen: `hongbao campaign refund-lost` ends them.",
		Example: "  hongbao recover\n  hongbao recover --accept-loss --by ann --why \"restored from the backup of 09:00\"",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.accept && (f.by == "" || f.why == "") {
				return usage("--accept-loss needs --by and --why: they are recorded")
			}
			return with(cmd, needs{}, func(d *deps) error { return d.recover(cmd, &f) })
		},
	}
	cmd.Flags().BoolVar(&f.accept, "accept-loss", false, "open the shards although something was lost")
	cmd.Flags().StringVar(&f.by, "by", "", "who decides")
	cmd.Flags().StringVar(&f.why, "why", "", "why")
	return cmd
}

func (d *deps) recover(cmd *cobra.Command, f *recoverFlags) error {
	ctx := cmd.Context()
	if err := d.reachRedis(ctx); err != nil {
		return err
	}
	r, err := d.recoverer(ctx)
	if err != nil {
		return err
	}
	verdicts, err := r.Look(ctx)
	if err != nil {
		return err
	}
	lost := slices.DeleteFunc(slices.Clone(verdicts), func(v *recovery.Verdict) bool { return !v.Frozen || !v.Lost() })
	if f.accept {
		for _, v := range lost {
			if err := r.Accept(ctx, v, f.by, f.why); err != nil {
				return err
			}
			d.log.Warn("a person accepted the loss of a shard", zap.Int("shard", v.Shard), zap.String("by", f.by), zap.String("why", f.why),
				zap.Stringer("lost", v))
		}
	}
	words, err := r.Accepted(ctx)
	if err != nil {
		return err
	}
	answer := struct {
		Shards   []*recovery.Verdict   `json:"shards"`
		Accepted []ledger.AcceptedLoss `json:"accepted"`
	}{verdicts, words}
	err = printAnswer(cmd, answer, func(w io.Writer) error {
		return errors.Join(writeVerdicts(w, verdicts, f.accept), writeAccepted(w, words))
	})
	if err == nil && len(lost) > 0 && !f.accept {
		err = found("%d shards have lost something and stay frozen. Let nobody write to this Redis and keep its files. If there is a newer append-only "+
			"file, or a replica that has more, start Redis from that; else `hongbao recover --accept-loss --by NAME --why TEXT` opens the shards without what "+
			"is lost", len(lost))
	}
	return err
}

// writeAccepted tells who accepted which losses, and why.
func writeAccepted(w io.Writer, words []ledger.AcceptedLoss) error {
	for i := range words {
		word := &words[i]
		if _, err := fmt.Fprintf(w, "%s: %s accepted that shard %d goes on in epoch %d: %s (%s)\n", word.At.Format(time.RFC3339), word.By, word.Shard,
			word.Epoch, word.Why, word.Lost); err != nil {
			return err
		}
	}
	return nil
}

func writeVerdicts(w io.Writer, verdicts []*recovery.Verdict, accepted bool) error {
	for _, v := range verdicts {
		state, what := "open", ""
		switch {
		case v.Frozen && v.Lost() && accepted:
			state, what = "opened", ": "+v.String()
		case v.Frozen && v.Lost():
			state, what = "FROZEN", ": "+v.String()
		case v.Frozen:
			state, what = "frozen", fmt.Sprintf(" for %s: nothing was lost, a worker opens it", v.For.Round(time.Second))
		}
		if _, err := fmt.Fprintf(w, "shard %d is %s%s\n", v.Shard, state, what); err != nil {
			return err
		}
		for _, c := range v.Campaigns {
			_, err := fmt.Fprintf(w, "  campaign %s stays frozen: %s; once the shard is open `hongbao campaign refund-lost %s` ends it\n", c.Campaign, c.Why, c.Campaign)
			if err != nil {
				return err
			}
		}
		if !v.Lost() {
			continue
		}
		for _, id := range v.Unloaded {
			if _, err := fmt.Fprintf(w,
				"  campaign %s is not in Redis, and nobody was granted anything there: `hongbao campaign load %s` loads it once the shard is open\n", id, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// recoverer opens the ledger and the topic by connections of its own.
func (d *deps) recoverer(ctx context.Context) (*recovery.Recoverer, error) {
	l, err := d.newLedger(ctx)
	if err != nil {
		return nil, err
	}
	cfg := recovery.Config{Redis: d.redis, Space: d.space, Ledger: l, Sinks: d.cfg.Deployment.Sinks, Owner: d.worker, Log: d.log}
	if slices.Contains(d.cfg.Deployment.Sinks, configs.SinkKafka) {
		if cfg.Topic, err = d.publisher(ctx); err != nil {
			return nil, err
		}
	}
	return recovery.New(cfg), nil
}

// tendShards opens shards that are frozen and have lost nothing, until ctx ends.
func (d *deps) tendShards(ctx context.Context, frozen <-chan int) error {
	policy := backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Second), backoff.WithMaxInterval(30*time.Second),
		backoff.WithMaxElapsedTime(0))
	for {
		r, err := d.recoverer(ctx)
		if err == nil {
			return r.Run(ctx, frozen)
		}
		var misused usageError
		if errors.As(err, &misused) {
			d.log.Warn("this worker can't open a shard that is frozen, others have to", zap.Error(err))
			<-ctx.Done()
			return nil
		}
		if hongbao.ClassOf(err) == hongbao.Broken && ctx.Err() == nil {
			d.log.Warn("this worker can't look after frozen shards yet, it is tried again", zap.Error(err))
		}
		select {
		case <-time.After(policy.NextBackOff()):
		case <-ctx.Done():
			return nil
		}
	}
}
