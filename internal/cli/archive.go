package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/ops/books"
)

func archiveCmd() *cobra.Command {
	var dir string
	remove := false
	cmd := &cobra.Command{
		Use: "archive CAMPAIGN...", Short: "Write the grants of sealed campaigns to CSV files, and delete them from the ledger",
		Long: "Writes each campaign's grants to CAMPAIGN.archive.csv with a manifest beside it. It reads the file back, compares\n" +
			"number, sum and SHA-256 with the seal, and records the file in the ledger. It deletes nothing.\n" +
			"It archives only campaigns that `hongbao audit --seal` has sealed.\n\n" +
			"With --delete it reads the recorded file back from the folder, and deletes the grants from the ledger,\n" +
			"chunk by chunk. Balances, transfers and the seal remain, so audits work as before. `hongbao receipts`\n" +
			"then names the file. If the command was killed, run it again with the same folder: it continues.",
		Example: "  hongbao archive spring-rain autumn-rain --dir /srv/archive\n" +
			"  hongbao archive spring-rain autumn-rain --dir /srv/archive --delete",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return app.Usage("give at least one CAMPAIGN (see `%s --help`)", cmd.CommandPath())
			}
			return checkCampaigns(args...)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd, app.Needs{Ledger: true}, func(a *app.App) error {
				done := []books.Removed{}
				step := books.Of(a).Archive
				if remove {
					step = books.Of(a).DeleteArchived
				}
				var err error
				for _, id := range args {
					var one books.Removed
					if one, err = step(cmd.Context(), id, dir); err != nil {
						break
					}
					done = append(done, one)
				}
				if err != nil && len(done) == 0 {
					return err
				}
				out := struct {
					Archived []books.Removed `json:"archived"`
				}{done}
				return errors.Join(printAnswer(cmd, out, func(w io.Writer) error { return writeRemoved(w, done, remove) }), err)
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "the folder for the files; with --delete the folder that has them")
	cmd.Flags().BoolVar(&remove, "delete", false,
		"delete the grants of campaigns whose files are recorded, after reading the files back; this can't be undone")
	return cmd
}

func writeRemoved(w io.Writer, done []books.Removed, deleted bool) error {
	for i := range done {
		r := &done[i]
		what := "verified and recorded; --delete deletes them from the ledger"
		if deleted {
			what = money.Count(r.Deleted) + " deleted from the ledger"
		}
		if _, err := fmt.Fprintf(w, "%s: %s with %s in %s (SHA-256 %s), %s\n", r.Campaign, plural.Of(r.Grants, "grant"),
			money.Text(r.Amount, r.Currency), r.File, r.SHA256, what); err != nil {
			return err
		}
	}
	return nil
}
