package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ops"
)

func campaignCmd() *cobra.Command {
	return family("campaign", "Plan, create, load, pause, close, refund and show campaigns", "",
		planCmd(), createCmd(), loadCmd(), dangerous(topUpCmd()), pauseCmd(), resumeCmd(), showCmd(), listCmd(), campaignWatchCmd(), dangerous(cancelCmd()),
		dangerous(closeCmd()), dangerous(refundCmd()), dangerous(refundLostCmd()), dangerous(revealCmd()), verifyCmd())
}

func loadCmd() *cobra.Command {
	return &cobra.Command{
		Use:     "load CAMPAIGN",
		Short:   "Load a campaign's packets into Redis and open the campaign; after a kill, run the command again",
		Example: "  hongbao campaign load spring-rain", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			return operate(cmd, app.Needs{Redis: true, Ledger: true}, func(o ops.Operations) error {
				out, err := o.LoadCampaign(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return printAnswer(cmd, out, func(w io.Writer) error {
					how := "loaded"
					if out.Already {
						how = "was loaded already"
					}
					zone := zoneOf(out.TimeZone)
					_, err := fmt.Fprintf(w, "campaign %s %s: %s packets, grabs from %s to %s (%s)\n", out.Campaign, how,
						money.Count(out.Packets), out.From.In(zone).Format(time.RFC3339), out.To.In(zone).Format(time.RFC3339), zone)
					return err
				})
			})
		},
	}
}

func pauseCmd() *cobra.Command {
	return stateCmd("pause", "Pause a campaign: grabs get the answer paused until it is resumed",
		ops.Operations.PauseCampaign)
}

func resumeCmd() *cobra.Command {
	return stateCmd("resume", "Resume a paused campaign",
		ops.Operations.ResumeCampaign)
}

func stateCmd(name, short string,
	do func(o ops.Operations, ctx context.Context, in ops.CampaignPause) (ops.CampaignState, error)) *cobra.Command {
	var by stream.Decision
	cmd := &cobra.Command{
		Use: name + " CAMPAIGN", Short: short, Args: oneCampaign,
		Long: "The command works while the ledger is down. Within a second after the ledger answers again, a worker\n" +
			"copies the decision to it. If Redis loses the decision, a worker restores it from the ledger.",
		Example: "  hongbao campaign " + name + " spring-rain --by ann --why \"the shop is closed\"",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDecision(cmd, &by); err != nil {
				return err
			}
			return operate(cmd, app.Needs{Redis: true}, func(o ops.Operations) error {
				out, err := do(o, cmd.Context(), ops.CampaignPause{Campaign: args[0], By: by.By, Why: by.Why})
				if err != nil {
					return err
				}
				return printAnswer(cmd, out, func(w io.Writer) error {
					p := out.Pause
					switch {
					case !out.Changed && p != nil:
						return writeKept(w, "campaign "+out.Campaign, "", p.By, p.Why, p.At)
					case !out.Changed:
						_, err := fmt.Fprintf(w, "campaign %s is %s already: nothing was changed\n", out.Campaign, out.State)
						return err
					}
					_, err := fmt.Fprintf(w, "campaign %s is %s\n", out.Campaign, out.State)
					return err
				})
			})
		},
	}
	addDecision(cmd.Flags(), &by, "; stored in Redis and in the ledger (required)")
	return cmd
}
