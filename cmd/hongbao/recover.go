package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/recovery"
)

func recoverCmd() *cobra.Command {
	var word app.Acceptance
	accept := false
	cmd := &cobra.Command{
		Use: "recover", Short: "Tell what a Redis that went back in time has lost, and open its shards if a person accepts " +
			"the loss",
		Long: "A shard is frozen when Redis was started anew, another server took over, or Redis went back in time: grabs " +
			"are answered frozen,\n" +
			"and workers wait. Workers open it by themselves within seconds if nothing was lost. If something was lost, this " +
			"command tells\n" +
			"what Redis, the ledger, the topic and the callers know. It changes nothing without --accept-loss.\n\n" +
			"With --accept-loss it opens the shards: new grants get event numbers behind everything that anybody knows. " +
			"Campaigns that Redis\n" +
			"has lost, or of which somebody knows more than Redis, stay frozen: `hongbao campaign refund-lost` ends them.",
		Example: "  hongbao recover\n  hongbao recover --accept-loss --by ann --why \"restored from the backup of 09:00\"",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if accept && (word.By == "" || word.Why == "") {
				return app.Usage("--accept-loss needs --by and --why: they are recorded")
			}
			return with(cmd, app.Needs{}, func(a *app.App) error {
				var given *app.Acceptance
				if accept {
					given = &word
				}
				r, err := a.Recover(cmd.Context(), given)
				if r == nil {
					return err
				}
				failed := printAnswer(cmd, r, func(w io.Writer) error {
					return errors.Join(writeVerdicts(w, r.Shards, accept), writeAccepted(w, r.Accepted))
				})
				if failed != nil { // exit code 3 promises an answer
					return failed
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "open the shards although something was lost")
	cmd.Flags().StringVar(&word.By, "by", "", "who decides")
	cmd.Flags().StringVar(&word.Why, "why", "", "why")
	return cmd
}

// writeAccepted tells who accepted which losses, and why.
func writeAccepted(w io.Writer, words []ledger.AcceptedLoss) error {
	for i := range words {
		word := &words[i]
		if _, err := fmt.Fprintf(w, "%s: %s accepted that shard %d goes on in epoch %d: %s (%s)\n",
			word.At.Format(time.RFC3339), word.By, word.Shard,
			word.Epoch, word.Why, word.Lost); err != nil {
			return err
		}
	}
	return nil
}

func writeVerdicts(w io.Writer, verdicts []*recovery.Verdict, accepted bool) error {
	if accepted && slices.ContainsFunc(verdicts, func(v *recovery.Verdict) bool { return v.Frozen && v.Lost() }) {
		_, err := fmt.Fprintln(w, "pauses and bounds of sinks that no shard had any more are gone: look at `hongbao sink list`")
		if err != nil {
			return err
		}
	}
	for _, v := range verdicts {
		state, what := "open", ""
		switch {
		case v.Frozen && v.Lost() && accepted:
			state, what = "opened", ": "+v.String()
		case v.Frozen && v.Lost():
			state, what = "FROZEN", ": "+v.String()
		case v.Frozen && v.Refused != "":
			state, what = "frozen", fmt.Sprintf(" for %s: nothing was lost", v.For.Round(time.Second))
		case v.Frozen:
			state, what = "frozen", fmt.Sprintf(" for %s: nothing was lost, a worker opens it", v.For.Round(time.Second))
		}
		if _, err := fmt.Fprintf(w, "shard %d is %s%s\n", v.Shard, state, what); err != nil {
			return err
		}
		if v.Refused != "" {
			if _, err := fmt.Fprintf(w, "  it stays frozen until its server is right: %s\n", v.Refused); err != nil {
				return err
			}
		}
		for _, c := range v.Campaigns {
			_, err := fmt.Fprintf(w, "  campaign %s stays frozen: %s; once the shard is open `hongbao campaign refund-lost %s` "+
				"ends it\n", c.Campaign, c.Why, c.Campaign)
			if err != nil {
				return err
			}
		}
		if !v.Lost() {
			continue
		}
		for _, id := range v.Unloaded {
			if _, err := fmt.Fprintf(w,
				"  campaign %s is not in Redis, and nobody was granted anything there: `hongbao campaign load %s` loads it once "+
					"the shard is open\n", id, id); err != nil {
				return err
			}
		}
	}
	return nil
}
