package cli

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/ops"
)

// replayFlags are the flags of `hongbao replay`.
type replayFlags struct {
	ops.Replay
	seqs, from, until string
	shard             int
}

func replayCmd() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use: "replay NAME", Short: "Deliver grants again: to the ledger (or the remote), to the topic, to a webhook, or to " +
			"another topic",
		Long: "Delivers the grants that the filters select. It reads a grant from the stream, or from the ledger\n" +
			"once the stream no longer has it. Some grants have a receipt and no entry, because the entry was\n" +
			"deleted before a worker read it: they come from the receipts (balance, kafka). A replay has a name,\n" +
			"and Redis records under this name what it has delivered. If the command was stopped or killed, run\n" +
			"it again: it continues, and delivers nothing twice.\n\n" +
			"  --to balance       the ledger settles the grants that it does not have, and ignores the others. A remote\n" +
			"                     (settlement.kind) is asked again, with the same keys. With --missing only the grants that the\n" +
			"                     ledger lacks, as after a backup was restored; it reads all receipts\n" +
			"  --to kafka         the topic gets what its sink has not finished; with --missing it gets what its sink has\n" +
			"                     finished and the topic does not have\n" +
			"  --to SINK          a webhook, or a sink of your own, gets all of it, with the same ids as before\n" +
			"  --to topic:OTHER   another topic, with as many partitions, gets all of it\n\n" +
			"Begin with --dry-run: it counts and writes nothing.",
		Example: "  hongbao replay for-audit --to topic:grants-copy --campaign spring-rain --dry-run\n" +
			"  hongbao replay for-audit --to topic:grants-copy --campaign spring-rain --rate 5000\n" +
			"  hongbao replay repair-topic --to kafka --missing\n  hongbao replay repair-ledger --to balance --shard 0 --seq " +
			"1-100000",
		Args: exactly(1, "one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(cmd, args[0]); err != nil {
				return err
			}
			return operate(cmd, app.Needs{Redis: true}, func(o ops.Operations) error {
				report, err := o.StartReplay(cmd.Context(), f.Replay)
				if report == nil {
					return err
				}
				return errors.Join(printAnswer(cmd, report, report.Write), err)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.To, "to", "", "the target: a sink, or topic:NAME for another topic")
	flags.StringVar(&f.Campaign, "campaign", "", "only grants of this campaign")
	flags.StringVar(&f.User, "user", "", "only grants of this user")
	flags.StringVar(&f.from, "from-time", "", "only grants decided at or after this time, such as 2026-02-17T20:00:00Z")
	flags.StringVar(&f.until, "to-time", "", "only grants decided before this time")
	flags.IntVar(&f.shard, "shard", 0, "only grants of this shard")
	flags.StringVar(&f.seqs, "seq", "", "only this range of seqs of the shard, such as 1-100; needs --shard if there are several shards")
	flags.StringVar(&f.Dead, "dead", "", "only the dead letters of this sink; they remain dead letters until a person decides about them")
	flags.BoolVar(&f.Missing, "missing", false,
		"with --to kafka: read the topic first, and publish the grants that the sink has finished and the topic lacks; "+
			"with --to balance: read the ledger first, and settle the grants that it lacks")
	flags.BoolVar(&f.DryRun, "dry-run", false, "only count the grants; change nothing")
	flags.Int64Var(&f.Rate, "rate", 0, "the most grants per second; 0 for the sink's own limit")
	flags.DurationVar(&f.Patience, "patience", time.Minute, "how long to try again while the target does not answer")
	return cmd
}

// check parses the flags, and refuses contradictions before the command connects to a server.
func (f *replayFlags) check(cmd *cobra.Command, name string) (err error) {
	f.Name = name
	if cmd.Flags().Changed("shard") {
		f.Shard = strconv.Itoa(f.shard)
	}
	if f.From, err = parseTime("--from-time", f.from); err != nil {
		return err
	}
	if f.Until, err = parseTime("--to-time", f.until); err != nil {
		return err
	}
	if f.seqs != "" {
		first, last, ok := strings.Cut(f.seqs, "-")
		a, err1 := strconv.ParseInt(first, 10, 64)
		b, err2 := strconv.ParseInt(last, 10, 64)
		if f.FirstSeq, f.LastSeq = a, b; !ok || err1 != nil || err2 != nil || a < 1 || b < a {
			return app.Usage("--seq %.60q: want first-last, as 1-100", f.seqs)
		}
	}
	return flagged(cmd, f.Check())
}

func parseTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, app.Usage("%s %.60q: want a time as 2026-02-17T20:00:00Z or 2026-02-17T20:00:00+08:00", flag, text)
	}
	return t.UTC(), nil
}
