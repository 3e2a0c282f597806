package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/hongbao-project/hongbao/internal/base/plural"
)

// manCmd returns the command that writes manual pages for packages of the program. The pages contain the text of
// --help. Their date is SOURCE_DATE_EPOCH if it is set, so that builds are reproducible.
func manCmd() *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "Write a manual page of each command into a folder",
		Example: "  hongbao man man1",
		Args:    exactly(1, "one FOLDER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // everyone may read manual pages
				return fmt.Errorf("make the folder of the manual pages: %w", err)
			}
			withoutTag(cmd.Root())
			err := doc.GenManTree(cmd.Root(), &doc.GenManHeader{Section: "1", Source: "Hongbao", Manual: "Hongbao"}, args[0])
			if err != nil {
				return fmt.Errorf("write the manual pages to %s: %w", args[0], err)
			}
			out := struct {
				Folder string `json:"folder"`
				Pages  int64  `json:"pages"`
			}{args[0], pagesOf(cmd.Root())}
			return printAnswer(cmd, out, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s written to %s\n", plural.Of(out.Pages, "manual page"), out.Folder)
				return err
			})
		},
	}
}

// pagesOf counts the commands that have a page.
func pagesOf(cmd *cobra.Command) int64 {
	n := int64(1)
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			n += pagesOf(c)
		}
	}
	return n
}

// withoutTag omits cobra's line about the generation of the page.
func withoutTag(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	for _, c := range cmd.Commands() {
		withoutTag(c)
	}
}
