package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
)

func grabCmd() *cobra.Command {
	g := hongbao.Grab{}
	cmd := &cobra.Command{
		Use: "grab CAMPAIGN USER", Short: "Make one grab and print the answer",
		Long: "Makes one grab. A refusal is a decision, too, so the exit code is 0. It is 2 if Redis does not have the\n" +
			"campaign: the id may be wrong. Exit code 4 means that the grab is not decided yet. After exit code 4\n" +
			"or a failure, run the command again with the same --request-id: if the first grab was granted, the\n" +
			"repeat gets the same receipt.",
		Example: "  hongbao grab spring-rain u1 --fact device=d1\n  hongbao grab spring-rain u2 --fact device=d2 --fact " +
			"channel=app --request-id r1 --json",
		Args: exactly(2, "a CAMPAIGN and a USER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			g.Campaign, g.User = args[0], args[1]
			if err := g.Check(); err != nil {
				return app.Usage("%w", err)
			}
			return with(cmd, app.Needs{Redis: true}, func(a *app.App) error {
				out, err := a.Grab(cmd.Context(), &g)
				if err != nil {
					return err
				}
				err = printAnswer(cmd, out, func(w io.Writer) error { return writeGrab(w, &out) })
				switch {
				case err != nil:
				case !out.Outcome.Final():
					err = undecidedError{fmt.Errorf("%s: nothing is decided yet; grab again with --request-id %s", out.Outcome,
						out.RequestID)}
				case out.Outcome == hongbao.OutcomeUnknownCampaign:
					err = app.Usage("campaign %s is not in Redis: check the id by `hongbao campaign list`. Nobody can grab before "+
						"`hongbao campaign load`", g.Campaign)
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&g.RequestID, "request-id", "",
		"id of this grab, the same for each repeat of it; required if a user may have several packets")
	cmd.Flags().StringVar(&g.Trace, "traceparent", "", "W3C traceparent that the grant carries to the topic")
	cmd.Flags().StringToStringVar(&g.Facts, "fact", nil, "a fact of the grab as name=value, by which the campaign's limits count; may be repeated")
	return cmd
}

func writeGrab(w io.Writer, a *app.Grabbed) error {
	if _, err := fmt.Fprintln(w, a.Outcome); err != nil {
		return err
	}
	for _, r := range a.Receipts {
		if err := writeReceipt(w, &r, a.Currency); err != nil {
			return err
		}
	}
	says := ""
	switch {
	case a.Limit != nil && !a.Limit.Resets.IsZero():
		says = fmt.Sprintf("limit of %d by %s per %s; it resets at %s\n", a.Limit.Limit.Max, a.Limit.Limit.By,
			a.Limit.Limit.Per,
			a.Limit.Resets.UTC().Format(time.RFC3339))
	case a.Limit != nil:
		says = fmt.Sprintf("limit of %d by %s per %s\n", a.Limit.Limit.Max, a.Limit.Limit.By, a.Limit.Limit.Per)
	case !a.Starts.IsZero() && !a.Starts.After(a.Time):
		says = "its window has begun, but it is still being loaded\n"
	case !a.Starts.IsZero():
		says = fmt.Sprintf("it starts at %s\n", a.Starts.UTC().Format(time.RFC3339))
	}
	_, err := io.WriteString(w, says)
	return err
}
