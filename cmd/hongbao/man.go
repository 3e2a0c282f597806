package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCmd is for whoever packs the program; the pages say what --help says. They have the date of SOURCE_DATE_EPOCH, if
// that is set, so that the same source gives the same pages.
func manCmd() *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Hidden: true, Short: "Write a manual page of each command into a folder",
		Args: exactly(1, "one FOLDER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // manual pages are for everybody
				return fmt.Errorf("make the folder of the manual pages: %w", err)
			}
			withoutTag(cmd.Root())
			err := doc.GenManTree(cmd.Root(), &doc.GenManHeader{Section: "1", Source: "Hongbao", Manual: "Hongbao"}, args[0])
			return wrap("write the manual pages to "+args[0], err)
		},
	}
}

// withoutTag leaves out the line that says which library has written the page.
func withoutTag(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	for _, c := range cmd.Commands() {
		withoutTag(c)
	}
}
