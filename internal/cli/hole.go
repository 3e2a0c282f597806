package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ops/losses"
)

func holeCmd() *cobra.Command {
	return family("hole", "Decide about holes: packets that were withheld after Redis had lost grants",
		"If Redis has lost grants, and a process that may have announced some of them to users does not\n"+
			"answer, the shard opens without these grants. The packets that these users may have got are\n"+
			"withheld: no grab gets one, and they count as left. If the process answers, its users get them. For\n"+
			"the other packets a person decides. A packet without a decision goes back to the sponsor with the\n"+
			"refund.",
		holeListCmd(), dangerous(holeGrantCmd()), dangerous(holeReleaseCmd()))
}

func holeListCmd() *cobra.Command {
	return &cobra.Command{
		Use: "list [CAMPAIGN]", Short: "List the withheld packets of one campaign or of all campaigns",
		Example: "  hongbao hole list\n  hongbao hole list spring-rain --json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return oneCampaign(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			campaign := ""
			if len(args) == 1 {
				campaign = args[0]
			}
			return with(cmd, app.Needs{Redis: true, Ledger: true}, func(a *app.App) error {
				list, err := losses.Of(a).ListHoles(cmd.Context(), campaign)
				if err != nil {
					return err
				}
				return printAnswer(cmd, map[string]any{"holes": list}, func(w io.Writer) error { return writeHoles(w, list) })
			})
		},
	}
}

// shownPackets bounds the packets of a campaign in the text output. --json lists all.
const shownPackets = 50

func writeHoles(w io.Writer, list []losses.Holes) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "No packet is withheld.")
		return err
	}
	t := newColumns(w)
	fmt.Fprintln(t, "CAMPAIGN\tSHARD\tPACKET\tAMOUNT")
	for i := range list {
		h := &list[i]
		for _, p := range h.Packets[:min(len(h.Packets), shownPackets)] {
			fmt.Fprintf(t, "%s\t%d\t%d\t%s\n", h.Campaign, h.Shard, p.Number, money.Text(p.Amount, h.Currency))
		}
		for _, g := range h.Again {
			fmt.Fprintf(t, "%s\t%d\t%d\t%s granted it to %s, and Redis has lost that: grant it again\n", h.Campaign, h.Shard,
				g.Packet, g.By, g.User)
		}
		fmt.Fprintf(t, "%s\t%d\tall %d\t%s\n", h.Campaign, h.Shard, h.Count, money.Text(h.Amount, h.Currency))
	}
	return t.Flush()
}

func holeGrantCmd() *cobra.Command {
	var o losses.HoleGrant
	cmd := &cobra.Command{
		Use:   "grant CAMPAIGN --packet NUMBER --user USER --by NAME --why TEXT",
		Short: "Grant a withheld packet to the user who was told of it",
		Long: "Grants the packet with a new seq. Workers pay and publish it like any other grant. Your own records\n" +
			"must show which packet was announced to which user. The campaign must be open or paused. A campaign\n" +
			"on several shards must be paused, so that the user gets no packet on another shard at the same time,\n" +
			"and no shard may be frozen. If a retry after the loss got the user another packet, leave out\n" +
			"--request-id. Then --above-limit grants this packet, too, even if the campaign's limit is reached. A\n" +
			"repeat changes nothing.",
		Example: "  hongbao hole grant spring-rain --packet 4711 --user u42 --request-id r-1 --by ann --why \"the app's log of 20:00:03\"",
		Args:    oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Campaign = args[0]
			if err := checkDecision(cmd, &o.Decision); err != nil {
				return err
			}
			if o.Packet < 1 {
				return app.Usage("--packet %d: want the number of a packet, as `hongbao hole list` prints it", o.Packet)
			}
			if err := hongbao.CheckID(o.User); err != nil {
				return app.Usage("--user %.80q: %w", o.User, err)
			}
			if o.RequestID != "" {
				if err := hongbao.CheckID(o.RequestID); err != nil {
					return app.Usage("--request-id %.80q: %w", o.RequestID, err)
				}
			}
			return with(cmd, app.Needs{Redis: true, Ledger: true}, func(a *app.App) error {
				g, err := losses.Of(a).GrantHole(cmd.Context(), o)
				if err != nil {
					return err
				}
				return printAnswer(cmd, g, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "user %s has packet %d of campaign %s, %s: event %s of %s\n", g.User, g.Packet, g.Campaign,
						money.Text(g.Amount, g.Currency), g.EventID(), g.Time.Format(time.RFC3339))
					return err
				})
			})
		},
	}
	cmd.Flags().Int64Var(&o.Packet, "packet", 0, "`number` of the packet, as hole list prints it (required)")
	cmd.Flags().StringVar(&o.User, "user", "", "the user who was told of the packet (required)")
	cmd.Flags().StringVar(&o.RequestID, "request-id", "", "the request id of the user's grab, so that a repeat of the grab gets this packet")
	cmd.Flags().BoolVar(&o.AboveLimit, "above-limit", false, "grant the packet even if the user then has more packets than the campaign's limit")
	addDecision(cmd.Flags(), &o.Decision, "; stored in the journal (required)")
	return cmd
}

func holeReleaseCmd() *cobra.Command {
	var by stream.Decision
	cmd := &cobra.Command{
		Use:   "release CAMPAIGN --by NAME --why TEXT",
		Short: "Return the withheld packets of a campaign to its stock",
		Long: "Returns all withheld packets of the campaign to its stock, so that other users can get them. If a\n" +
			"packet was announced to a user of whom you have no record, this user gets nothing. The command\n" +
			"refuses a campaign on several shards: its users may have continued to another shard. A repeat\n" +
			"changes nothing.",
		Example: "  hongbao hole release spring-rain --by ann --why \"the pod never answered a user: its log is empty\"",
		Args:    oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDecision(cmd, &by); err != nil {
				return err
			}
			return with(cmd, app.Needs{Redis: true, Ledger: true}, func(a *app.App) error {
				out, err := losses.Of(a).ReleaseHoles(cmd.Context(), args[0], by)
				if err != nil {
					return err
				}
				return printAnswer(cmd, out, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "campaign %s: %s %s released\n", out.Campaign,
						plural.Of(out.Released, "packet"), plural.Verb(out.Released, "was", "were"))
					return err
				})
			})
		},
	}
	addDecision(cmd.Flags(), &by, "; stored in the journal (required)")
	return cmd
}
