package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger"
)

func balanceClientCmd() *cobra.Command {
	return family("client", "Give clients of the balance server their tokens, and list or revoke them",
		"Each client has its own keys and references, and its own fund. It may have several tokens, so that a new one can "+
			"follow an old\n"+
			"one without a pause. The database has the tokens' hashes only; a server that runs notices a change within a second.",
		clientAddCmd(), clientListCmd(), clientRevokeCmd())
}

// tokenID returns a token's name in lists: the beginning of its hash.
func tokenID(hash string) string { return hash[:12] }

func clientAddCmd() *cobra.Command {
	scopes := []string{string(payment.ScopeCredit), string(payment.ScopeCredits)}
	cmd := &cobra.Command{
		Use: "add CLIENT", Short: "Make a token for a client, and print it: it is shown this once",
		Long: "Makes a token for a client, and the client with its first one; and the tables, if the database has none. The " +
			"token is that of\n" +
			"HONGBAO_BALANCE_TOKEN (or ..._FILE), or else it is drawn and printed: it is shown this once.",
		Example: "  hongbao balance client add worker --ledger.dsn=balance.db\n" +
			"  hongbao balance client add helpdesk --scope accounts:read --ledger.dsn=balance.db",
		Args: exactly(1, "one client"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd, app.Needs{}, func(a *app.App) error {
				of := make([]payment.Scope, len(scopes))
				for i, s := range scopes {
					of[i] = payment.Scope(s)
				}
				token, text, err := a.AddClient(cmd.Context(), args[0], of)
				if err != nil {
					return err
				}
				return printAnswer(cmd, struct {
					clientToken
					Token string `json:"token,omitempty"`
				}{printableToken(&token), text}, func(w io.Writer) error {
					if text == "" {
						text = "client " + token.Client + " has the token of balance.token, " + tokenID(token.Hash)
					}
					_, err := fmt.Fprintln(w, text)
					return err
				})
			})
		},
	}
	cmd.Flags().StringSliceVar(&scopes, "scope", scopes,
		"what the token is good for: credits:write, credits:read, accounts:read")
	return cmd
}

// clientToken and clientFund are a token and a fund of a client, as `client list` prints them.
type clientToken struct {
	Client  string          `json:"client"`
	ID      string          `json:"id"`
	Scopes  []payment.Scope `json:"scopes"`
	Created *time.Time      `json:"created,omitempty"`
}

type clientFund struct {
	Client   string         `json:"client"`
	Currency string         `json:"currency"`
	Funded   hongbao.Amount `json:"funded"`
	Credited hongbao.Amount `json:"credited"`
	Left     hongbao.Amount `json:"left"`
	Credits  int64          `json:"credits"`
}

func printableToken(t *payment.ClientToken) clientToken {
	out := clientToken{Client: t.Client, ID: tokenID(t.Hash), Scopes: t.Scopes}
	if !t.Created.IsZero() {
		out.Created = &t.Created
	}
	return out
}

func printableFund(f *ledger.Fund) clientFund {
	return clientFund{f.Client, f.Currency, f.Funded, f.Credited, f.Left(), f.Credits}
}

// clients is the answer of `client list`.
type clients struct {
	Tokens []clientToken `json:"tokens"`
	Funds  []clientFund  `json:"funds"`
}

func clientListCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List clients, their valid tokens and their funds",
		Example: "  hongbao balance client list --ledger.dsn=balance.db", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, app.Needs{}, func(a *app.App) error {
				tokens, funds, err := a.Clients(cmd.Context())
				if err != nil {
					return err
				}
				out := clients{make([]clientToken, len(tokens)), make([]clientFund, len(funds))}
				for i := range tokens {
					out.Tokens[i] = printableToken(&tokens[i])
				}
				for i := range funds {
					out.Funds[i] = printableFund(&funds[i])
				}
				return printAnswer(cmd, out, out.write)
			})
		},
	}
	return cmd
}

func (c *clients) write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CLIENT\tTOKEN\tCREATED\tSCOPES")
	for _, o := range c.Tokens {
		scopes := make([]string, len(o.Scopes))
		for i, s := range o.Scopes {
			scopes[i] = string(s)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", o.Client, o.ID, o.Created.Format(time.RFC3339), strings.Join(scopes, ","))
	}
	fmt.Fprintln(t, "\nCLIENT\tFUNDED\tCREDITED\tLEFT\tCREDITS")
	for _, f := range c.Funds {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\n", f.Client, money.Text(f.Funded, f.Currency), money.Text(f.Credited, f.Currency),
			money.Text(f.Left, f.Currency), f.Credits)
	}
	return t.Flush()
}

func clientRevokeCmd() *cobra.Command {
	id, all := "", false
	cmd := &cobra.Command{
		Use: "revoke CLIENT", Short: "Revoke a client's token, or all of them",
		Example: "  hongbao balance client revoke worker --token 3f2a9c01d4e5 --ledger.dsn=balance.db",
		Args:    exactly(1, "one client"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (id == "") != all {
				return app.Usage("say either --token, with an ID that `hongbao balance client list` prints, or --all (see `%s "+
					"--help`)", cmd.CommandPath())
			}
			return with(cmd, app.Needs{}, func(a *app.App) error {
				n, err := a.RevokeTokens(cmd.Context(), args[0], id)
				if err != nil {
					return err
				}
				out := struct {
					Client  string `json:"client"`
					Revoked int64  `json:"revoked_tokens"`
				}{args[0], n}
				return printAnswer(cmd, out, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "revoked tokens: %d\n", n)
					return err
				})
			})
		},
	}
	cmd.Flags().StringVar(&id, "token", "", "the token's ID")
	cmd.Flags().BoolVar(&all, "all", false, "all tokens of the client")
	return cmd
}

func balanceFundCmd() *cobra.Command {
	var f ledger.Funding
	cmd := &cobra.Command{
		Use: "fund CLIENT", Short: "Fill what a client's credits come from",
		Long: "Puts an amount into the client's fund in a currency, once for each --id: the same command again moves " +
			"nothing. A client credits\n" +
			"no more than its fund has; then its credits are answered 503 with code fund_exhausted until the fund is filled.",
		Example: "  hongbao balance fund worker --amount 100000000 --currency CNY --id budget-2026-11 --by ann --why \"the " +
			"budget\" --ledger.dsn=balance.db",
		Args: exactly(1, "one client"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.Client = args[0]
			if f.ID == "" || f.By == "" || f.Why == "" || f.Currency == "" || f.Amount == 0 {
				return app.Usage("--amount, --currency, --id, --by and --why are required (see `%s --help`)", cmd.CommandPath())
			}
			return with(cmd, app.Needs{}, func(a *app.App) error {
				fund, err := a.Fund(cmd.Context(), f)
				if err != nil {
					return err
				}
				out := printableFund(&fund)
				return printAnswer(cmd, out, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "fund of %s: %s put into it, %s credited, %s left\n", out.Client,
						money.Text(out.Funded, out.Currency),
						money.Text(out.Credited, out.Currency), money.Text(out.Left, out.Currency))
					return err
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.Var((*amountFlag)(&f.Amount), "amount", "amount in minor units (required)")
	flags.StringVar(&f.Currency, "currency", "", "three capital letters (required)")
	flags.StringVar(&f.ID, "id", "", "name of this funding, as a ticket or a budget has; kept with it (required)")
	addDecision(flags, &f.Decision, "; kept with it (required)")
	return cmd
}
