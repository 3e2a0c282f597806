//go:build production

package cli

import "github.com/spf13/cobra"

const localHint = ""

func localCmds() []*cobra.Command { return nil }
