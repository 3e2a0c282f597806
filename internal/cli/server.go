package cli

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ops"
)

func addServer(flags *pflag.FlagSet) {
	flags.String("server", "", "run the command on the server whose control listener has this `URL`, instead of on the stores; default "+
		configs.ServerEnv)
	flags.String("key-file", "", "`FILE` with the API key for --server; default "+configs.KeyFileEnv)
	flags.String("server-ca", "", "PEM `FILE` with the CA of --server; default "+configs.ServerCAEnv+", or the system's CAs")
}

func flagOr(cmd *cobra.Command, flag, env string) string {
	f := cmd.Flag(flag)
	if f == nil { // in a test, a command may have no root
		return ""
	}
	return cmp.Or(f.Value.String(), os.Getenv(env))
}

func serverOf(cmd *cobra.Command) string { return flagOr(cmd, "server", configs.ServerEnv) }

// dangerous marks a command whose effect can't be undone. Such a command first prints which deployment it changes.
func dangerous(cmd *cobra.Command) *cobra.Command {
	cmd.Annotations = map[string]string{"dangerous": "true"}
	return cmd
}

// announce prints which deployment a dangerous command changes. It prints to standard error, to keep standard output
// unchanged.
func announce(cmd *cobra.Command, where string) {
	if cmd.Annotations["dangerous"] != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "hongbao: acting on "+where)
	}
}

// operate calls do with operations that go to the server of --server, or without --server to the stores.
func operate(cmd *cobra.Command, n app.Needs, do func(o ops.Operations) error) error {
	server := serverOf(cmd)
	if server == "" {
		return with(cmd, n, func(a *app.App) error { return flagged(cmd, do(&ops.Local{App: a})) })
	}
	r, err := remoteAt(cmd, server)
	if err != nil {
		return app.Usage("%w", err)
	}
	announce(cmd, "the deployment of server "+server)
	line := newProgressLine(cmd.ErrOrStderr())
	defer line.end()
	if line.width != nil {
		r.Waits = func(on bool) {
			if on {
				line.show(app.Progress{What: cmd.Name() + ": the server works on it"})
			} else {
				line.show(app.Progress{})
			}
		}
	}
	return flagged(cmd, do(r))
}

// remoteAt returns a client for a server. It reads the key and the CA from their files.
func remoteAt(cmd *cobra.Command, server string) (*ops.Remote, error) {
	path := flagOr(cmd, "key-file", configs.KeyFileEnv)
	if path == "" {
		return nil, fmt.Errorf("--server needs --key-file, or %s: a file with an API key, as `hongbao key create` prints it",
			configs.KeyFileEnv)
	}
	key, err := configs.ReadSecret(path)
	if err != nil {
		return nil, fmt.Errorf("--key-file: %w", err)
	}
	var roots *x509.CertPool
	if path := flagOr(cmd, "server-ca", configs.ServerCAEnv); path != "" {
		if roots, err = configs.ReadRoots(path); err != nil {
			return nil, fmt.Errorf("--server-ca: %w", err)
		}
	}
	return ops.NewRemote(server, key, roots)
}

// flagNames maps fields of the API to the flags or arguments that have another name.
var flagNames = map[string]string{"from": "from-time", "to": "to-time", "until": "to-time", "grants_per_second": "rate",
	"letter": "LETTER", "sink": "SINK", "name": "NAME", "tiers": "tier",
	"wait_seconds": "wait"}

// flagged adds the name of the flag to the error about an invalid input.
func flagged(cmd *cobra.Command, err error) error {
	var wrong *ops.InputError
	if !errors.As(err, &wrong) {
		return err
	}
	field := wrong.Field
	name := strings.ReplaceAll(field, "_", "-")
	if field != "" && cmd.Flag(name) == nil {
		name = cmp.Or(flagNames[field], name)
	}
	if cmd.Flag(strings.ToLower(name)) != nil {
		name = "--" + strings.ToLower(name)
	}
	text := strings.TrimSpace(name + " " + wrong.Text)
	if field == "" {
		text = wrong.Text
	}
	return app.Usage("%s (see `%s --help`)", text, cmd.CommandPath())
}
