package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

func versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version, and those of the formats that it reads and writes",
		Example: "  hongbao version", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), versionText())
			return err
		},
	}
}

// versionText is what `hongbao version` and `hongbao --version` print.
func versionText() string {
	version, revision, goVersion := "unknown", "", ""
	if b, ok := debug.ReadBuildInfo(); ok {
		version, goVersion = b.Main.Version, b.GoVersion
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				revision = " " + s.Value
			}
		}
	}
	return fmt.Sprintf("hongbao %s%s\n%s, entries version %d, Redis schema %d\n",
		version, revision, goVersion, hongbao.EntryVersion, shards.SchemaVersion)
}
