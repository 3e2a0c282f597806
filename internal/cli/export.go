package cli

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/ops/books"
)

func exportCmd() *cobra.Command {
	var (
		e   books.Export
		day string
	)
	cmd := &cobra.Command{
		Use: "export", Short: "Write a day's movements of money to CSV files for reconciliation, one file for each campaign",
		Long: "Writes the ledger's movements on a day to CAMPAIGN-DAY.csv, a line for each grant, funding, refund\n" +
			"and payment from the reserve, and prints the sums. The day begins and ends in the campaign's time\n" +
			"zone. The command writes a file completely or not at all. It refuses a day that may get more lines.\n" +
			"With --unfinished it writes such a day to CAMPAIGN-DAY.unfinished.csv.\n" +
			"Without it the exit code is then 4: run the command again later. With --json the answer has the\n" +
			"SHA-256 of each file. The columns: docs/reconciliation.md.",
		Example: "  hongbao export --day 2026-02-18\n" +
			"  hongbao export --day 2026-02-18 --campaign spring-rain --dir /srv/reports --unfinished",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if e.Day, err = time.Parse(time.DateOnly, day); err != nil {
				return app.Usage("--day %.60q: give a date as 2026-02-17 (see `%s --help`)", day, cmd.CommandPath())
			}
			if e.Campaign != "" {
				if err := checkCampaigns(e.Campaign); err != nil {
					return err
				}
			}
			return with(cmd, app.Needs{Ledger: true}, func(a *app.App) error {
				files, err := books.Of(a).Export(cmd.Context(), e)
				if err != nil && len(files) == 0 {
					return err
				}
				out := struct {
					Files []books.Exported `json:"files"`
				}{files}
				return errors.Join(printAnswer(cmd, out, func(w io.Writer) error { return writeExported(w, files) }), err)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&day, "day", "", "the day, such as 2026-02-17, in each campaign's time zone (required)")
	flags.StringVar(&e.Campaign, "campaign", "", "only this campaign (default every campaign that moved money on that day)")
	flags.StringVar(&e.Dir, "dir", ".", "the folder for the files")
	flags.BoolVar(&e.Exact, "exact", false, "write the column account as it is, for programs; a spreadsheet could take an account for a formula")
	flags.BoolVar(&e.Unfinished, "unfinished", false, "also write a day that is not over, or whose grants are not all settled")
	return cmd
}

func writeExported(w io.Writer, files []books.Exported) error {
	if len(files) == 0 {
		_, err := fmt.Fprintln(w, "no campaign moved money on that day")
		return err
	}
	t := newColumns(w)
	fmt.Fprintln(t, "FILE\tLINES\tOPENING\tFUNDED\tGRANTS\tGRANTED\tREFUNDED\tCLOSING\tFROM RESERVE")
	for i := range files {
		f := &files[i]
		text := func(a hongbao.Amount) string { return money.Text(a, f.Currency) }
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", f.File, f.Lines, text(f.Opening), text(f.Funded), f.Grants,
			text(f.Granted), text(f.Refunded), text(f.Closing), text(f.Paid))
	}
	return t.Flush()
}
