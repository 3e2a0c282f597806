package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/books"
)

func auditCmd() *cobra.Command {
	var in ops.Audit
	var campaigns []string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "audit", Short: "Compare Redis, the ledger and the topic, and name every difference",
		Long: "Compares Redis, the ledger and the topic. For each campaign, funded = granted + left must be true, and\n" +
			"a refund must have returned what was left. Redis, the ledger and the topic must have the same set of\n" +
			"grants, each once. The seqs must have no gap. With settlement.kind=remote the command also asks the\n" +
			"remote about every grant, if remote.queryable is set, with at most audit.rate queries a second.\n" +
			"The command writes only seals, with --seal, and the verdict of an audit of all campaigns: Redis keeps\n" +
			"it for the metrics and for `hongbao audit last`.\n" +
			"With --server the server audits, with its own memory. The servers of a deployment run one audit at a\n" +
			"time: during it, the command fails and prints when the audit started and who started it. --seal needs\n" +
			"a treasurer's key there.\n" +
			"The exit code is 0 if there is no difference. It is 3 if there is a difference, or if grants wait for\n" +
			"a sink without a live worker.",
		Example: "  hongbao audit\n  hongbao audit --wait 30s --json\n  hongbao audit --campaign spring-rain",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			in.Campaign, in.WaitSeconds = strings.Join(campaigns, ","), int64(math.Ceil(wait.Seconds()))
			if err := in.Check(); err != nil {
				return flagged(cmd, err)
			}
			// An audit keeps mostly data without pointers, so garbage collection is cheap. Collecting more often than
			// by default saves half of the memory.
			debug.SetGCPercent(25)
			return operate(cmd, app.Needs{Redis: true}, func(o ops.Operations) error { return runAudit(cmd, o, in) })
		},
	}
	cmd.AddCommand(lastAuditCmd(), acknowledgeCmd())
	cmd.Flags().DurationVar(&wait, "wait", 0, "the longest wait until workers have finished all grants, in whole seconds")
	cmd.Flags().StringSliceVar(&campaigns, "campaign", nil, "audit only these campaigns, by their ids")
	cmd.Flags().BoolVar(&in.Full, "full", false,
		"ignore seals: read all grants that are not archived, every account and the whole topic")
	cmd.Flags().BoolVar(&in.Seal, "seal", false,
		"if there is no difference, seal the refunded campaigns that have left Redis: later audits do not read their grants again")
	return cmd
}

func runAudit(cmd *cobra.Command, o ops.Operations, in ops.Audit) error {
	report, err := o.Audit(cmd.Context(), in)
	if report == nil {
		return err
	}
	err = errors.Join(printAnswer(cmd, report, func(w io.Writer) error {
		return report.WriteWithin(w, terminalWidth(cmd.OutOrStdout()))
	}), err)
	if err == nil && report.Verdict != model.Agrees {
		err = app.NeedsAttention("the audit found differences")
	}
	if err != nil || report.Quiet {
		return err
	}
	s, err := o.ListSinks(cmd.Context())
	if err != nil {
		return err
	}
	return s.Deserted()
}

func lastAuditCmd() *cobra.Command {
	return &cobra.Command{
		Use: "last", Short: "Show the verdict of the last audit of all campaigns",
		Long: "Shows when the last audit of all campaigns began, its verdict, and the number of its differences, no\n" +
			"matter who ran it. It compares nothing itself. An audit with --campaign stores no verdict.\n" +
			"The exit code is 3 if the audit found differences, and 1 if there was no audit yet.",
		Example: "  hongbao audit last\n  hongbao audit last --json", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return operate(cmd, app.Needs{Redis: true}, func(o ops.Operations) error {
				last, err := o.LastAudit(cmd.Context())
				if err != nil {
					return err
				}
				if last.Differences == nil {
					return hongbao.Errorf(hongbao.ClassPermanent, "there has been no audit of all campaigns yet: run "+
						"`hongbao audit`, or press Audit now in the console")
				}
				if err := printAnswer(cmd, last, func(w io.Writer) error { return writeLastAudit(w, &last) }); err != nil {
					return err
				}
				if *last.Differences > 0 {
					return app.NeedsAttention("the last audit found differences: run `hongbao audit`, or press Audit now in the " +
						"console, to see them")
				}
				return nil
			})
		},
	}
}

func writeLastAudit(w io.Writer, last *books.LastAudit) error {
	_, err := fmt.Fprintf(w, "Redis, ledger and topic: %s. Last audit: %s, differences: %s.\n", last.Verdict,
		last.Started.UTC().Format(time.RFC3339), money.Count(*last.Differences))
	return err
}

func acknowledgeCmd() *cobra.Command {
	var until string
	var by stream.Decision
	cmd := &cobra.Command{
		Use: "acknowledge FILE", Short: "Acknowledge a known difference: until a given time, audits show it and do not count it",
		Long: `Acknowledges a difference that is known and that nothing can repair, such as a copy in the topic that only
retention removes.

FILE has one difference as hongbao audit --json prints it, for example by jq '.differences[0]'; - reads standard input.
The audit then shows the difference with exactly these words as acknowledged: its verdict, the alarms and --seal ignore
it until the time is over. Anything else that differs counts as before. Run it again to change the time or the reason.
double_credit can't be acknowledged.`,
		Example: "  hongbao audit acknowledge difference.json --until 720h --by ann --why \"TICKET-7: subscribers drop the copy\"",
		Args:    exactly(1, "one FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if until == "" || by.By == "" || by.Why == "" {
				return app.Usage("--until, --by and --why are required: the end, the person who decides, and the reason (see `%s --help`)",
					cmd.CommandPath())
			}
			end, err := parseEnd("--until", until)
			if err != nil {
				return err
			}
			d, err := readFile(cmd, args[0], readDifference)
			if err != nil {
				return app.Usage("difference %s: %w", args[0], err)
			}
			in := ops.Acknowledge{Kind: string(d.Kind), Where: d.Where, Campaign: d.Campaign, Packet: d.Packet, Event: d.Event,
				Detail: d.Detail, Until: end, By: by.By, Why: by.Why}
			return operate(cmd, app.Needs{Ledger: true}, func(o ops.Operations) error {
				out, err := o.AcknowledgeDifference(cmd.Context(), in)
				if err != nil {
					return err
				}
				return printAnswer(cmd, out, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s\nis acknowledged until %s\n", d, out.Until.Format(time.RFC3339))
					return err
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&until, "until", "", "from when on audits count the difference again: a time, or a duration from now such as 720h (required)")
	addDecision(flags, &by, "; stored with the acknowledgement (required)")
	return cmd
}

// readDifference reads one difference of a report.
func readDifference(r io.Reader) (*model.Difference, error) {
	d := &model.Difference{}
	in := json.NewDecoder(io.LimitReader(r, 1<<20))
	in.DisallowUnknownFields()
	if err := in.Decode(d); err != nil {
		return nil, fmt.Errorf("want one difference from the output of `hongbao audit --json`: %w", err)
	}
	return d, nil
}
