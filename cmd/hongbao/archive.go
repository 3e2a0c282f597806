package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
)

func archiveCmd() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "archive CAMPAIGN...", Short: "Move the grants of sealed campaigns from the ledger to CSV files",
		Long: "Writes each campaign's grants to CAMPAIGN.csv with a manifest beside it. It reads the file back, and\n" +
			"compares number, sum and SHA-256. Then it deletes the grants from the ledger, chunk by chunk.\n" +
			"Balances, transfers and the seal remain, so audits work as before. `hongbao receipts` then names the\n" +
			"file. It archives only campaigns that `hongbao audit --seal` has sealed. If the command was killed,\n" +
			"run it again with the same folder: it continues.",
		Example: "  hongbao archive spring-rain --dir /srv/archive\n" +
			"  hongbao archive spring-rain autumn-rain --dir /srv/archive",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return app.Usage("give at least one CAMPAIGN (see `%s --help`)", cmd.CommandPath())
			}
			return checkCampaigns(args...)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd, app.Needs{Ledger: true}, func(a *app.App) error {
				done := []app.Removed{}
				var err error
				for _, id := range args {
					var one app.Removed
					if one, err = a.Archive(cmd.Context(), id, dir); err != nil {
						break
					}
					done = append(done, one)
				}
				if err != nil && len(done) == 0 {
					return err
				}
				out := struct {
					Archived []app.Removed `json:"archived"`
				}{done}
				return errors.Join(printAnswer(cmd, out, func(w io.Writer) error { return writeRemoved(w, done) }), err)
			})
		},
	}
	cmd.Flags().StringVar(&dir, "dir", ".", "the folder for the files; to continue after a kill, the same folder again")
	return cmd
}

func writeRemoved(w io.Writer, done []app.Removed) error {
	for i := range done {
		r := &done[i]
		if _, err := fmt.Fprintf(w, "%s: %d grants with %s in %s (SHA-256 %s), %d deleted from the ledger\n", r.Campaign,
			r.Grants, money.Text(r.Amount, r.Currency), r.File, r.SHA256, r.Deleted); err != nil {
			return err
		}
	}
	return nil
}
