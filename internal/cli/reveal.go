package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/ops"
)

func revealCmd() *cobra.Command {
	return &cobra.Command{
		Use: "reveal CAMPAIGN", Short: "Print a refunded campaign's seed, so that anyone can recompute the draw",
		Long: "Prints the specification, the hash that was published before the start, and the seed, as JSON. The\n" +
			"ledger records that the seed is public. Before the refund the command prints no seed, because the\n" +
			"seed determines the amount of every packet. Publish what the command prints, so that anyone can\n" +
			"check the draw with `hongbao campaign verify`.",
		Example: "  hongbao campaign reveal spring-rain > spring-rain.json", Args: oneCampaign,
		RunE: func(cmd *cobra.Command, args []string) error {
			return operate(cmd, app.Needs{Ledger: true}, func(o ops.Operations) error {
				d, err := o.RevealCampaign(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				return printJSON(cmd, d)
			})
		},
	}
}

func verifyCmd() *cobra.Command {
	var published []string
	grants := ""
	cmd := &cobra.Command{
		Use: "verify FILE", Short: "Recompute a campaign's draw from published data alone, without any server",
		Long: "Recomputes the draw from what `hongbao campaign reveal` printed (- for standard input).\n" +
			"Specification and seed must produce the hash. --hash is the hash that was published before the\n" +
			"start; give the hashes of top-ups, too. With --grants it compares each grant that `hongbao tail`\n" +
			"printed with the plan. The command needs no configuration and asks no server, so anyone can run it.\n" +
			"The exit code is 0 if there is no difference, and 3 otherwise.",
		Example: "  hongbao campaign verify spring-rain.json --hash 9f86d081...\n" +
			"  hongbao tail --campaign spring-rain > grants.jsonl && hongbao campaign verify spring-rain.json --grants " +
			"grants.jsonl",
		Args: exactly(1, "one FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := readFile(cmd, args[0], campaign.ReadDisclosure)
			if err != nil {
				return app.Usage("%s: %w", args[0], err)
			}
			c, plan, err := d.Verify(published...)
			if err != nil {
				return app.NeedsAttention("campaign %.80q does not verify: %w", d.Campaign, err)
			}
			out := verified{Campaign: c.ID, Currency: c.Currency, Hash: d.Hash, Hashes: d.Hashes(),
				Amounts: money.Histogram(plan.Amounts)}
			out.Compared = slices.Contains(published, out.Hashes[len(out.Hashes)-1])
			if grants != "" {
				seen, err := readFile(cmd, grants,
					func(r io.Reader) (campaign.GrantsChecked, error) { return campaign.CheckGrants(r, c.ID, plan) })
				var unread *fs.PathError
				if errors.As(err, &unread) {
					return app.Usage("%w", err)
				}
				if err != nil {
					return app.NeedsAttention("%s: %w", grants, err)
				}
				out.Grants = &checkedGrants{seen.Grants, seen.Amount, seen.Repeated, seen.Others}
			}
			return printAnswer(cmd, out, out.write)
		},
	}
	cmd.Flags().StringArrayVar(&published, "hash", nil, "a hash that was published before the start, or with a top-up; "+
		"may be repeated")
	cmd.Flags().StringVar(&grants, "grants", "", "file with the grants in the format that hongbao tail prints")
	return cmd
}

// verified is the result of `hongbao campaign verify`.
type verified struct {
	Campaign string `json:"campaign"`
	Currency string `json:"currency,omitempty"`
	Hash     string `json:"plan_hash"`
	// Hashes has the hash of each generation: the first covers the specification, and each other one a top-up.
	Hashes []string `json:"plan_hashes"`
	// Compared reports whether the user passed the published hash of the last generation. It covers all earlier hashes.
	Compared bool           `json:"compared_with_published"`
	Grants   *checkedGrants `json:"grants"` // null without --grants
	Amounts  []money.Bin    `json:"amounts"`
}

type checkedGrants struct {
	Grants   int64          `json:"grants"`
	Amount   hongbao.Amount `json:"amount"`
	Repeated int64          `json:"repeated_lines"`
	Others   int64          `json:"lines_of_others"`
}

func (v *verified) write(w io.Writer) error {
	fmt.Fprintf(w, "campaign %s verifies: specification and seed produce the hash %s\n", v.Campaign, v.Hash)
	for i, hash := range v.Hashes[1:] {
		fmt.Fprintf(w, "generation %d verifies: its hash is %s\n", i+2, hash)
	}
	switch {
	case !v.Compared && len(v.Hashes) > 1:
		fmt.Fprintln(w, "compare the last hash with the hash that was published with the top-up, or give that as --hash: it "+
			"covers the hashes before it")
	case !v.Compared:
		fmt.Fprintln(w, "compare it with the hash that was published before the start, or give that as --hash")
	}
	if g := v.Grants; g != nil {
		fmt.Fprintf(w, "%d grants, %s in all, each with its planned amount (%d lines repeated one, %d are of other "+
			"campaigns)\n",
			g.Grants, money.Text(g.Amount, v.Currency), g.Repeated, g.Others)
	}
	return money.WriteHistogram(w, v.Amounts, v.Currency)
}

// readFile reads a file, or standard input if path is "-". A signal interrupts the read of standard input.
func readFile[T any](cmd *cobra.Command, path string, read func(io.Reader) (T, error)) (T, error) {
	if path == "-" {
		return readInput(cmd, read)
	}
	f, err := os.Open(path)
	if err != nil {
		var zero T
		return zero, err
	}
	defer f.Close()
	return read(f)
}

func readInput[T any](cmd *cobra.Command, read func(io.Reader) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := read(cmd.InOrStdin())
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-cmd.Context().Done():
		var none T
		return none, fmt.Errorf("read standard input: %w", context.Cause(cmd.Context()))
	}
}
