package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
)

// root returns the root command. Every knob is a flag of every command, but only the help of `hongbao config check`
// lists these flags, because they would hide a command's own flags.
func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hongbao",
		Short: "Red-packet rains, coupon rushes and flash giveaways: paid once, announced once",
		Long: "Hongbao decides each grab in Redis in one atomic step. Then it makes sure that each grant is paid exactly once and\n" +
			"announced exactly once." + localHint + "\n\n" +
			exitsText() + "\nEach code of an alarm has a runbook: https://github.com/hongbao-project/hongbao/blob/main/docs/alarms.md",
		SilenceErrors: true, SilenceUsage: true,
		Version: versions().text(),
		Args:    subcommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return checkEmpty(cmd) },
	}
	cmd.SetVersionTemplate("{{.Version}}")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		hint := ""
		if cmd.Flags().Lookup("why") != nil && strings.Contains(err.Error(), "unknown flag: --reason") {
			hint = "; the person who decides is --by, and the reason --why"
		}
		if _, name, ok := strings.Cut(err.Error(), "unknown flag: --"); ok {
			if why := configs.Moved(name); why != "" {
				hint = ": " + why
			}
		}
		return app.Usage("%w%s (see `%s --help`)", err, hint, cmd.CommandPath())
	})
	flags := cmd.PersistentFlags()
	flags.String("config", "", "YAML file with the configuration (default "+configs.PathEnv+", or no file)")
	flags.Bool("json", false, "print the answer as one JSON document")
	addServer(flags)
	configs.AddFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if strings.Contains(f.Name, ".") {
			f.Hidden = true
		}
	})
	addGroup(cmd, "run", "Run it", append(localCmds(), serveCmd(), controlCmd(), workCmd(), balanceCmd(), healthCmd())...)
	addGroup(cmd, "campaigns", "Campaigns and their users", campaignCmd(), grabCmd(), receiptsCmd(), userCmd(), whyCmd(),
		tailCmd())
	addGroup(cmd, "trouble", "When something is wrong", statusCmd(), doctorCmd(), sinkCmd(), dangerous(recoverCmd()), deadCmd(),
		claimCmd(), quarantineCmd(), holeCmd(), replayCmd())
	addGroup(cmd, "books", "Accounting and audits", auditCmd(), journalCmd(), exportCmd(), archiveCmd())
	addGroup(cmd, "setup", "Set-up", initCmd(), configCmd(), keyCmd(), versionCmd(), manCmd())
	cmd.SetHelpCommandGroupID("setup")
	cmd.SetCompletionCommandGroupID("setup")
	complete(cmd)
	return cmd
}

// addGroup adds commands that the help shows together under a title.
func addGroup(root *cobra.Command, id, title string, members ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title + ":"})
	for _, cmd := range members {
		cmd.GroupID = id
	}
	root.AddCommand(members...)
}

// checkEmpty refuses an empty value of a command's own flag, which an unset shell variable often causes. Most flags are
// filters, so without a value the command would select everything. An empty --after is valid and selects the first
// page.
func checkEmpty(cmd *cobra.Command) (err error) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if f.Changed && f.Name != "after" && (len(values) == 0 || slices.Contains(values, "")) {
			err = app.Usage("--%s is empty: give it a value, or leave it out (see `%s --help`)", f.Name, cmd.CommandPath())
		}
	})
	return err
}

// load reads the configuration from the command line, the environment and the file.
func load(cmd *cobra.Command) (*configs.Config, error) {
	if server := serverOf(cmd); server != "" {
		return nil, app.Usage("`%s` works with the stores, not at a server: leave out --server, and unset %s (now %.80q)",
			cmd.CommandPath(), configs.ServerEnv, server)
	}
	path, err := cmd.Flags().GetString("config")
	if err != nil {
		return nil, app.Usage("%w", err)
	}
	if path == "" {
		path = os.Getenv(configs.PathEnv)
	}
	cfg, err := configs.Load(path, os.Environ(), cmd.Flags())
	if err == nil {
		cfg.Handlers = handlersOf(cmd)
	}
	return cfg, err
}

// with reads the configuration, opens the servers that the command needs, and calls do.
func with(cmd *cobra.Command, n app.Needs, do func(a *app.App) error) error {
	cfg, err := load(cmd)
	if err != nil {
		return err
	}
	announce(cmd, cfg.Place())
	line := newProgressLine(cmd.ErrOrStderr())
	defer line.end()
	return app.WithHooks(cmd.Context(), cfg, n, line.hooks(), do)
}

// family returns a command that has only subcommands.
func family(use, short, long string, members ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: subcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	for _, m := range members {
		m.SuggestFor = synonyms[m.Name()]
	}
	cmd.AddCommand(members...)
	return cmd
}

// synonyms are words for which a family suggests its command.
var synonyms = map[string][]string{"list": {"status", "show", "ls"}, "show": {"status"}, "remove": {"rm", "delete"},
	"drop": {"rm", "remove", "delete"}, "revoke": {"rm", "remove", "delete"}}

// subcommand checks the arguments of a command that has only subcommands.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	cmd.SuggestionsMinimumDistance = 2 // cobra sets it only if Args is nil
	for _, s := range cmd.SuggestionsFor(args[0]) {
		hint += "; did you mean " + s + "?"
	}
	return app.Usage("%s has no command %.80q%s (see `%s --help`)", cmd.CommandPath(), args[0], hint, cmd.CommandPath())
}

// checkCampaigns refuses invalid campaign ids before the command connects to a server.
func checkCampaigns(ids ...string) error {
	for _, id := range ids {
		if err := hongbao.CheckCampaignID(id); err != nil {
			return app.Usage("campaign %.80q: %w", id, err)
		}
	}
	return nil
}

// oneCampaign checks the arguments of a command about one campaign.
func oneCampaign(cmd *cobra.Command, args []string) error {
	if err := exactly(1, "one campaign ID")(cmd, args); err != nil {
		return err
	}
	return checkCampaigns(args...)
}

// addDecision adds the flags --by and --why. kept is appended to their help.
func addDecision(flags *pflag.FlagSet, d *stream.Decision, kept string) {
	addBy(flags, &d.By, &d.Why, kept)
}

func addBy(flags *pflag.FlagSet, by, why *string, kept string) {
	flags.StringVar(by, "by", "", "the person who decides"+kept)
	flags.StringVar(why, "why", "", "the reason"+kept)
}

// checkDecision requires --by and --why.
func checkDecision(cmd *cobra.Command, d *stream.Decision) error {
	if d.By == "" || d.Why == "" {
		return app.Usage("--by and --why are required: the person who decides, and the reason (see `%s --help`)", cmd.CommandPath())
	}
	return nil
}

// exactly requires n arguments, and names the help in its error.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return app.Usage("want %s, got %d arguments (see `%s --help`)", what, len(args), cmd.CommandPath())
		}
		return nil
	}
}
