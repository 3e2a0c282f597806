package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ops/apikeys"
)

func keyCmd() *cobra.Command {
	return family("key", "Create, list, rotate or revoke API keys of people and programs",
		"An API key identifies a caller of the administration API, the console or the balance API, or a gateway that grabs for "+
			"its users.\n"+
			"Its role determines what it may do; see docs/security.md. The commands work on the ledger of the deployment, or on a "+
			"database\n"+
			"that only `hongbao balance` uses.\n"+
			"The ledger has the SHA-256 of its secret only. Servers that run notice a change within 10 seconds.",
		keyCreateCmd(), keyListCmd(), keyRotateCmd(), keyRevokeCmd())
}

func keyCreateCmd() *cobra.Command {
	var (
		want    access.Key
		role    string
		expires string
	)
	total := (*amountFlag)(&want.LargestTotal)
	cmd := &cobra.Command{
		Use: "create", Short: "Create an API key and print it, only this once",
		Long: "Creates an API key with a role and prints it, only this once.\n\n" +
			"viewer     reads\n" +
			"operator   loads, pauses and resumes campaigns and sinks, requeues letters, replays\n" +
			"treasurer  creates, closes and refunds campaigns, decides about quarantine, drops letters\n" +
			"gateway    grabs for the users that it names, and reads their receipts\n" +
			"client     books credits at `hongbao balance` from the fund of its --client, and reads them\n" +
			"accountant reads the credits of its --client, and balances and statements of all accounts\n\n" +
			"A treasurer may do what an operator may, and an operator what a viewer may. With --campaign the key is valid for " +
			"these campaigns only,\nand for nothing that concerns the whole deployment. With --sponsor a treasurer's key funds campaigns of\n" +
			"these sponsors only, and with --largest-total each campaign with at most this amount.\n\n" +
			"The key ends after 90 days. --expires sets another end; `hongbao key rotate KEY --expires 2160h` moves it.",
		Example: "  hongbao key create --role treasurer --sponsor acme --largest-total 1000000\n" +
			"  hongbao key create --role operator --note \"ann\"\n" +
			"  hongbao key create --role client --client worker --ledger.dsn=balance.db\n" +
			"  hongbao key create --role gateway --campaign 'spring-*' --expires never",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cmd.Flags().Changed("largest-total") && want.LargestTotal == 0 {
				return app.Usage("--largest-total is 0, so the key could fund no campaign: give 1 or more, or leave it out for no bound")
			}
			want.Role = access.Role(role)
			if want.Expires, err = parseKeyEnd(expires); err == nil {
				err = want.Check(time.Now())
			}
			if err != nil {
				return app.Usage("%w (see `%s --help`)", err, cmd.CommandPath())
			}
			bank := want.Client != ""
			return with(cmd, app.Needs{Ledger: !bank, Keys: bank}, func(a *app.App) error {
				k, err := apikeys.Of(a).CreateKey(cmd.Context(), want)
				if err != nil {
					return err
				}
				return printKey(cmd, k)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&role, "role", "", "role of the key: viewer, operator, treasurer, gateway, client or accountant (required)")
	flags.StringVar(&want.Client, "client", "", "the client of the balance API to which a key of role client or accountant belongs")
	flags.StringSliceVar(&want.Campaigns, "campaign", nil,
		"a campaign for which the key is valid, or a prefix such as spring-*; may be repeated (default all)")
	flags.StringSliceVar(&want.Sponsors, "sponsor", nil,
		"a sponsor whose money a treasurer's key may spend; may be repeated (default every sponsor)")
	flags.Var(total, "largest-total", "the most that a treasurer's key may fund one campaign with, top-ups included, in minor "+
		"units (default any)")
	flags.StringVar(&expires, "expires", "", keyEndHelp+" (default 2160h: 90 days)")
	flags.StringVar(&want.Note, "note", "", "note about the key, such as its owner; the list shows it")
	return cmd
}

// parseEnd parses a time, or a duration that begins now.
func parseEnd(flag, text string) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return time.Now().Add(d).UTC().Truncate(time.Second), nil
	}
	return parseTime(flag, text)
}

const keyEndHelp = "expiry of the key: a time, a duration from now such as 720h, or never"

// parseKeyEnd returns the end of a key: the zero time for never, and 90 days from now for an empty text.
func parseKeyEnd(text string) (time.Time, error) {
	switch text {
	case "never":
		return time.Time{}, nil
	case "":
		text = access.KeyTime.String()
	}
	return parseEnd("--expires", text)
}

// printKey prints nothing but the new key, so that a script can read it.
func printKey(cmd *cobra.Command, k *apikeys.NewKey) error {
	return printAnswer(cmd, k, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, k.Text)
		return err
	})
}

func keyListCmd() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use: "list", Short: "List the valid API keys",
		Example: "  hongbao key list\n  hongbao key list --all --json", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, app.Needs{Keys: true}, func(a *app.App) error {
				keys, err := apikeys.Of(a).Keys(cmd.Context(), all)
				if err != nil {
					return err
				}
				return printAnswer(cmd, map[string]any{"keys": keys}, func(w io.Writer) error { return writeKeys(w, keys) })
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also list revoked and expired keys")
	return cmd
}

func writeKeys(w io.Writer, keys []access.Key) error {
	t := newColumns(w)
	fmt.Fprintln(t, "KEY\tROLE\tCLIENT\tCAMPAIGNS\tSPONSORS\tLARGEST TOTAL\tCREATED\tEXPIRES\tREVOKED\tNOTE")
	at := func(at time.Time) string {
		if at.IsZero() {
			return "-"
		}
		return at.Format(time.RFC3339)
	}
	for i := range keys {
		k := &keys[i]
		client, campaigns, sponsors, total := "-", "all", "any", "any"
		if k.Client != "" {
			client, campaigns, sponsors, total = k.Client, "-", "-", "-"
		}
		if len(k.Campaigns) > 0 {
			campaigns = strings.Join(k.Campaigns, ",")
		}
		if len(k.Sponsors) > 0 {
			sponsors = strings.Join(k.Sponsors, ",")
		}
		if k.LargestTotal > 0 {
			total = strconv.FormatInt(int64(k.LargestTotal), 10)
		}
		fmt.Fprintln(t, strings.Join([]string{k.ID, string(k.Role), client, campaigns, sponsors, total, at(k.Created),
			k.End(), at(k.Revoked), k.Note}, "\t"))
	}
	return t.Flush()
}

func keyRotateCmd() *cobra.Command {
	overlap, expires := 24*time.Hour, ""
	cmd := &cobra.Command{
		Use: "rotate KEY", Short: "Give an API key a new secret and print the key, only this once",
		Long: "Gives an API key a new secret. The key's role and campaigns do not change, and its end changes only with\n" +
			"--expires. An expired key can't be rotated. The old secret remains valid for --overlap, so that the\n" +
			"key's owner can switch without an interruption. Until then another rotation is refused, because it\n" +
			"would end that secret at once. --overlap 0s ends all older secrets at once.",
		Example: "  hongbao key rotate 5xk2q7vmaz3t\n  hongbao key rotate 5xk2q7vmaz3t --overlap 0s --expires 2160h",
		Args:    exactly(1, "one key, by its id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if overlap < 0 {
				return app.Usage("--overlap: give 0s or more (see `%s --help`)", cmd.CommandPath())
			}
			var end *time.Time
			if cmd.Flags().Changed("expires") {
				t, err := parseKeyEnd(expires)
				if err != nil {
					return err
				}
				end = &t
			}
			return with(cmd, app.Needs{Keys: true}, func(a *app.App) error {
				k, err := apikeys.Of(a).RotateKey(cmd.Context(), args[0], overlap, end)
				if err != nil {
					return err
				}
				return printKey(cmd, k)
			})
		},
	}
	cmd.Flags().DurationVar(&overlap, "overlap", overlap, "how long the old secret remains valid")
	cmd.Flags().StringVar(&expires, "expires", "", keyEndHelp+" (default unchanged)")
	return cmd
}

func keyRevokeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "revoke KEY", Short: "Revoke an API key permanently, and end the console sessions that used it",
		Example: "  hongbao key revoke 5xk2q7vmaz3t", Args: exactly(1, "one key, by its id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd, app.Needs{Keys: true}, func(a *app.App) error {
				k, err := apikeys.Of(a).RevokeKey(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return printAnswer(cmd, k, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "key %s is revoked; servers refuse it within 10 seconds\n", k.ID)
					return err
				})
			})
		},
	}
}
