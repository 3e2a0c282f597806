package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/configs"
)

func configCmd() *cobra.Command {
	return family("config", "Check the configuration", "", configCheckCmd())
}

func configCheckCmd() *cobra.Command {
	connect := false
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration, and print each knob with its value and its source",
		Long: "Checks the file, the environment and the flags, and prints all mistakes at once (exit code 2).\n" +
			"docs/configuration.md describes every knob. Each knob is a flag of every command.",
		Example: "  hongbao config check --config configs/production.yaml\n  hongbao config check --connect " +
			"--redis.addrs=10.0.0.7:6379",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, app.Needs{}, func(a *app.App) error {
				out := checkedConfig{Servers: []string{}}
				for _, s := range a.Config.Settings() {
					out.Settings = append(out.Settings, setting{s.Name, s.Value, s.Source})
				}
				var err error
				if connect {
					out.Servers, err = a.Check(cmd.Context())
					out.Failed = failures(err)
					out.RemoteNotAsked = a.Config.Settlement.Kind == configs.SettleRemote
				}
				return errors.Join(printAnswer(cmd, &out, out.write), err)
			})
		},
	}
	cmd.Flags().BoolVar(&connect, "connect", false,
		"also connect to Redis, the ledger and Kafka, and run every check that a worker runs at its start")
	knobs := pflag.NewFlagSet("knobs", pflag.ContinueOnError)
	configs.AddFlags(knobs)
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(c *cobra.Command, args []string) {
		help(c, args)
		fmt.Fprintf(c.OutOrStdout(), "\nKnobs, flags of every command:\n%s", knobs.FlagUsagesWrapped(120))
	})
	return cmd
}

// checkedConfig is a valid configuration.
type checkedConfig struct {
	Settings []setting `json:"settings"`
	// Servers are the servers that were checked and are configured as required.
	Servers        []string `json:"servers"`
	RemoteNotAsked bool     `json:"remote_not_asked,omitempty"`
	// Failed has the error of each server that failed a check.
	Failed []string `json:"failed,omitempty"`
}

// failures returns the errors that are joined in err, each on one line.
func failures(err error) (list []string) {
	if all, ok := err.(interface{ Unwrap() []error }); ok { // only the errors at the top
		for _, err := range all.Unwrap() {
			list = append(list, strings.Join(strings.Fields(err.Error()), " "))
		}
	}
	return list
}

type setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"`
}

func (c *checkedConfig) write(w io.Writer) error {
	t := newColumns(w)
	for _, s := range c.Settings {
		fmt.Fprintf(t, "%s\t%s\t%s\n", s.Name, s.Value, s.Source)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(c.Failed) > 0 { // last, so that a reader of the last lines sees it
		fmt.Fprintln(w)
		_, err := fmt.Fprintln(w, "failed: "+strings.Join(c.Failed, "\nfailed: "))
		return err
	}
	if len(c.Servers) == 0 {
		return nil
	}
	text, last := c.Servers[0], len(c.Servers)-1
	if last > 0 {
		text = strings.Join(c.Servers[:last], ", ") + " and " + c.Servers[last]
	}
	text += ": as they must be"
	if c.RemoteNotAsked {
		text += "; the remote was not asked"
	}
	_, err := fmt.Fprintln(w, "\n"+text)
	return err
}
