package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCmd returns the command that writes manual pages for packages of the program. The pages contain the text of
// --help. Their date is SOURCE_DATE_EPOCH if it is set, so that builds are reproducible.
func manCmd() *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Hidden: true, Short: "Write a manual page of each command into a folder",
		Args: exactly(1, "one FOLDER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // everyone may read manual pages
				return fmt.Errorf("make the folder of the manual pages: %w", err)
			}
			withoutTag(cmd.Root())
			err := doc.GenManTree(cmd.Root(), &doc.GenManHeader{Section: "1", Source: "Hongbao", Manual: "Hongbao"}, args[0])
			return wrap("write the manual pages to "+args[0], err)
		},
	}
}

// withoutTag omits cobra's line about the generation of the page.
func withoutTag(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	for _, c := range cmd.Commands() {
		withoutTag(c)
	}
}
