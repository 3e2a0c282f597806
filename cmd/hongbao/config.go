package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hongbao-project/hongbao/configs"
)

func configCmd() *cobra.Command {
	return family("config", "Look at the configuration", "", configCheckCmd())
}

func configCheckCmd() *cobra.Command {
	connect := false
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration, and print each knob with its value and where it came from",
		Long: "Checks the file, the environment and the flags, and names everything that is wrong at once (exit code 2).\n" +
			"docs/configuration.md describes every knob; each is a flag of every command.",
		Example: "  hongbao config check --config configs/production.yaml\n  hongbao config check --connect --redis.addrs=10.0.0.7:6379",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, needs{}, func(d *deps) error {
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				for _, s := range d.cfg.Settings() {
					fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Value, s.Source)
				}
				if err := w.Flush(); err != nil {
					return fmt.Errorf("print the configuration: %w", err)
				}
				if connect {
					return d.checkAll(cmd)
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&connect, "connect", false, "also connect to Redis, the ledger and Kafka and make every check of a worker's start")
	knobs := pflag.NewFlagSet("knobs", pflag.ContinueOnError)
	configs.AddFlags(knobs)
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(c *cobra.Command, args []string) {
		help(c, args)
		fmt.Fprintf(c.OutOrStdout(), "\nKnobs, flags of every command:\n%s", knobs.FlagUsagesWrapped(120))
	})
	return cmd
}

// checkAll makes every check of a worker's start, and names every server that fails one.
func (d *deps) checkAll(cmd *cobra.Command) error {
	ctx := cmd.Context()
	errs, checked := []error{d.openRedis(ctx)}, []string{"redis"}
	if slices.Contains(d.cfg.Deployment.Sinks, configs.SinkBalance) {
		errs, checked = append(errs, d.openLedger(ctx)), append(checked, "ledger")
	}
	if slices.Contains(d.cfg.Deployment.Sinks, configs.SinkKafka) {
		_, err := d.publisher(ctx)
		errs, checked = append(errs, err), append(checked, "topic")
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	last := len(checked) - 1
	text := strings.Join(checked[:last], ", ") + " and " + checked[last] + ": as they must be"
	if d.cfg.Settlement.Kind == configs.SettleRemote {
		text += "; the remote was not asked"
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), "\n"+text)
	return err
}
