package cli

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ops"
)

func versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version, and the versions of the formats that it reads and writes",
		Example: "  hongbao version", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions()
			return printAnswer(cmd, v, func(w io.Writer) error {
				_, err := io.WriteString(w, v.text())
				return err
			})
		},
	}
}

// builtFrom has the versions of this build and of its formats.
type builtFrom struct {
	Version      string `json:"version"`
	Revision     string `json:"revision,omitempty"`
	Go           string `json:"go"`
	EntryVersion int    `json:"entry_version"`
	RedisSchema  int    `json:"redis_schema"`
}

func versions() builtFrom {
	v := builtFrom{Version: "unknown", EntryVersion: stream.EntryVersion, RedisSchema: ops.RedisSchema()}
	if b, ok := debug.ReadBuildInfo(); ok {
		v.Version, v.Go = b.Main.Version, b.GoVersion
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	return v
}

// text returns the output of `hongbao version` and `hongbao --version`.
func (v builtFrom) text() string {
	revision := ""
	if v.Revision != "" {
		revision = " " + v.Revision
	}
	return fmt.Sprintf("hongbao %s%s\n%s, entries version %d, Redis schema %d\n", v.Version, revision, v.Go,
		v.EntryVersion, v.RedisSchema)
}
