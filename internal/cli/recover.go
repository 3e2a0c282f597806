package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/losses"
)

func recoverCmd() *cobra.Command {
	var word losses.Acceptance
	var without []string
	accept := false
	cmd := &cobra.Command{
		Use: "recover", Short: "Show what Redis has lost, and open a shard if a person accepts the loss",
		Long: "A shard is frozen when Redis was restarted, when another server took over, or when Redis lost\n" +
			"writes. Then grabs get the answer frozen, and workers wait. Workers open the shard within seconds if\n" +
			"nothing was lost, or if they can restore what is known. Packets that a silent process may have\n" +
			"announced to users are then withheld: see `hongbao hole`. Otherwise this command shows what Redis,\n" +
			"the ledger, the topic and the processes that answered users know: the campaigns that stay frozen,\n" +
			"their money, and the grants that were announced and are not paid. Without --accept-loss the command\n" +
			"changes nothing.\n\n" +
			"With --accept-loss the command opens the shard that --shard names, if --expect is the digest that it\n" +
			"printed for this shard. New grants get seqs above all known ones. Campaigns stay frozen if Redis has\n" +
			"lost them, or if other stores know more about them. If no one knows the campaign of a lost event,\n" +
			"all open campaigns stay frozen. `hongbao campaign refund-lost` ends them.\n\n" +
			"While Kafka is down, the command shows what the others know, without a digest. --without kafka\n" +
			"leaves the topic out; events that only the topic knows are then lost, too.\n" +
			"--without ledger opens a shard of which Redis has lost nothing, while the ledger is down. Grabs\n" +
			"continue. Workers pay and publish nothing of that shard until the ledger is back and a worker has\n" +
			"recorded the decision in it. --without kafka,ledger leaves both out.",
		Example: "  hongbao recover\n  hongbao recover --accept-loss --shard 0 --expect 1c5f00a2b7d4 --by ann --why \"restored " +
			"from the backup of 09:00\"",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts, err := recoverOptions(cmd, accept, without, &word)
			if err != nil {
				return err
			}
			return with(cmd, app.Needs{}, func(a *app.App) error {
				r, err := losses.Of(a).Recover(cmd.Context(), opts)
				if r == nil {
					return err
				}
				failed := printAnswer(cmd, r, func(w io.Writer) error {
					return errors.Join(writeShards(w, r.Shards, strings.Join(without, ",")), writeAccepted(w, r.Accepted),
						writeRestored(w, r.Restored, r.Undecided))
				})
				if failed != nil { // with exit code 3, an answer must have been printed
					return failed
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "open the shard of --shard although Redis lost data")
	cmd.Flags().IntVar(&word.Shard, "shard", 0, "number of the shard to open")
	cmd.Flags().StringVar(&word.Expect, "expect", "", "the digest that hongbao recover printed for the shard")
	addDecision(cmd.Flags(), &word.Decision, "")
	cmd.Flags().StringSliceVar(&without, "without", nil, "leave out kafka, ledger or both, because they are down")
	return cmd
}

// recoverOptions checks the flags and returns the options.
func recoverOptions(cmd *cobra.Command, accept bool, without []string, word *losses.Acceptance) (losses.RecoverOptions, error) {
	var opts losses.RecoverOptions
	for _, source := range without {
		switch source {
		case configs.SinkKafka:
			opts.WithoutTopic = true
		case "ledger":
			opts.WithoutLedger = true
		default:
			return opts, app.Usage("--without %.40q: only kafka and ledger can be left out", source)
		}
	}
	if !accept {
		for _, name := range []string{"shard", "expect", "by", "why"} {
			if cmd.Flags().Changed(name) {
				return opts, app.Usage("--%s needs --accept-loss: nothing was done", name)
			}
		}
		return opts, nil
	}
	if word.By == "" || word.Why == "" {
		return opts, app.Usage("--accept-loss needs --by and --why: they are recorded")
	}
	if !cmd.Flags().Changed("shard") || word.Expect == "" {
		return opts, app.Usage("--accept-loss needs --shard and --expect: run `hongbao recover`, read what it shows for the " +
			"shard, and give its digest")
	}
	opts.Accept = word
	return opts, nil
}

// writeAccepted prints each accepted loss, with the person who accepted it and the reason.
func writeAccepted(w io.Writer, words []model.AcceptedLoss) error {
	for i := range words {
		word := &words[i]
		if _, err := fmt.Fprintf(w, "%s: %s accepted that shard %d continues in epoch %d: %s (%s)\n",
			word.At.Format(time.RFC3339), word.By, word.Shard,
			word.Epoch, word.Why, word.Lost); err != nil {
			return err
		}
	}
	return nil
}

// writeRestored prints the restores, which workers made without a person.
func writeRestored(w io.Writer, list []model.Restored, undecided *int64) error {
	for i := range list {
		r := &list[i]
		silent := ""
		if r.Silent {
			silent = fmt.Sprintf("; a process did not answer that may have announced more grants to users, and %s "+
				"%s withheld", plural.Of(r.Withheld, "packet"), plural.Verb(r.Withheld, "was", "were"))
		}
		if r.First == 0 {
			if _, err := fmt.Fprintf(w, "%s: shard %d continued in epoch %d, and no loss was known%s\n",
				r.At.Format(time.RFC3339), r.Shard, r.Epoch, silent); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Fprintf(w, "%s: shard %d continued in epoch %d with %s of events %d to %d that Redis had lost: %d "+
			"known from the ledger, %d from the topic, %d from producers; %s %s unknown to all%s\n", r.At.Format(time.RFC3339),
			r.Shard, r.Epoch, plural.Of(r.Ledger+r.Topic+r.Witnesses, "grant"), r.First, r.Last, r.Ledger, r.Topic, r.Witnesses,
			plural.Of(r.Unknown, "event"), plural.Verb(r.Unknown, "was", "were"), silent); err != nil {
			return err
		}
	}
	if undecided == nil || *undecided == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "withheld packets without a decision: %d, see `hongbao hole list`\n", *undecided)
	return err
}

func writeShards(w io.Writer, list []*losses.ShardLoss, without string) error {
	var b strings.Builder
	for _, s := range list {
		state, what := "open", ""
		switch {
		case s.Opened:
			state, what = "opened", ": "+s.String()
		case s.Digest != "" || s.TopicUnread:
			state, what = "FROZEN", ": "+s.String()
		case s.Frozen && s.Refused != "":
			state, what = "frozen", fmt.Sprintf(" for %s: nothing was lost", s.For.Round(time.Second))
		case s.Frozen:
			state, what = "frozen", fmt.Sprintf(" for %s: nothing was lost, a worker opens it", s.For.Round(time.Second))
		}
		fmt.Fprintf(&b, "shard %d is %s%s\n", s.Shard, state, what)
		if s.Refused != "" {
			fmt.Fprintf(&b, "  it stays frozen until its server is fixed: %s\n", s.Refused)
		}
		writeLoss(&b, s, without)
		for _, u := range s.Unrecorded {
			fmt.Fprintf(&b, "  %s opened it without the ledger at %s (%s): its grants wait until the ledger knows that\n", u.By,
				u.At.Format(time.RFC3339), u.Why)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeLoss prints what is lost if the shard is opened without the data that Redis has lost.
func writeLoss(b *strings.Builder, s *losses.ShardLoss, without string) {
	for i, c := range s.Campaigns {
		e := &s.Effects[i]
		fmt.Fprintf(b, "  campaign %s stays frozen: %s. The ledger has paid %s of %s, %s of %s; once the shard is open "+
			"`hongbao campaign refund-lost %s` ends it and returns the rest to the sponsor\n", c.Campaign, c.Why,
			money.Count(e.Paid), plural.Of(e.Packets, "packet"), money.Text(e.PaidAmount, e.Currency),
			money.Text(e.Funded, e.Currency), c.Campaign)
	}
	for i := range s.Unpaid {
		u := &s.Unpaid[i]
		sum := ""
		if u.Currency != "" {
			sum = ", " + money.Text(u.Amount, u.Currency)
		}
		fmt.Fprintf(b, "  campaign %s: %s%s, %s in the topic and not in the ledger: their users may know "+
			"that they won, and nothing pays them. --json lists them\n", u.Campaign, plural.Of(u.Grants, "grant"), sum,
			plural.Verb(u.Grants, "is", "are"))
	}
	if s.Unknown > 0 {
		lacks := ": no one knows their users"
		switch {
		case s.TopicUnread || strings.Contains(without, configs.SinkKafka):
			lacks = "; the topic, which was not read, may know their users"
		case s.Topic >= 0:
			lacks = " and the topic lacks" + lacks
		}
		fmt.Fprintf(b, "  up to %d more %s seen that the ledger has not paid%s\n", s.Unknown,
			plural.Verb(s.Unknown, "event was", "events were"), lacks)
	}
	if s.TopicUnread {
		fmt.Fprintln(b, "  unknown: grants that only the topic has, which Kafka did not show")
	}
	if s.Lost() {
		for _, id := range s.Unloaded {
			fmt.Fprintf(b, "  campaign %s is not in Redis, and no one was granted anything there: `hongbao campaign load %s` loads "+
				"it once the shard is open\n", id, id)
		}
	}
	if s.Ledger < 0 && s.Blind() != nil {
		fmt.Fprintf(b, "  %v\n", s.Blind())
		return
	}
	if s.Digest != "" && !s.Opened {
		if without != "" {
			without = "--without " + without + " "
		}
		fmt.Fprintf(b, "  to accept this loss: hongbao recover "+without+"--accept-loss --shard %d --expect %s --by NAME --why "+
			"TEXT\n", s.Shard, s.Digest)
	}
}
