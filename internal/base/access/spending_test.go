package access

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

func TestMaySpend(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spending Spending
		sponsor  string
		total    hongbao.Amount
		says     string
	}{
		"no bound":                    {Spending{}, "acme", hongbao.MaxAmount, ""},
		"its sponsor":                 {Spending{Sponsors: []string{"acme", "b"}}, "b", 1, ""},
		"another sponsor":             {Spending{Sponsors: []string{"acme", "b"}}, "c", 1, `sponsor "c" is not among its sponsors (acme, b)`},
		"a prefix is another sponsor": {Spending{Sponsors: []string{"acme"}}, "acme2", 1, "acme2"},
		"as much as it may":           {Spending{LargestTotal: 100}, "acme", 100, ""},
		"more than it may":            {Spending{LargestTotal: 100}, "acme", 101, "101 minor units"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			who := Caller{Key: "k", Role: RoleTreasurer, Spending: c.spending}
			err := MaySpend(As(context.Background(), who.Actor("r")), c.sponsor, c.total)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrMayNotSpend)
			require.ErrorContains(t, err, c.says)
			e := Entry{}
			e.End(err)
			require.Equal(t, OutcomeDenied, e.Outcome)
		})
	}
	require.NoError(t, MaySpend(context.Background(), "anyone", hongbao.MaxAmount), "a command has no bound")
}

// Only a treasurer's key may have spending limits. On any other key they would have no effect, so Check refuses them.
func TestKeysWithSpending(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]Key{
		"an operator with a sponsor":       {Role: RoleOperator, Spending: Spending{Sponsors: []string{"acme"}}},
		"a gateway with a largest total":   {Role: RoleGateway, Spending: Spending{LargestTotal: 1}},
		"a sponsor with a space":           {Role: RoleTreasurer, Spending: Spending{Sponsors: []string{"a b"}}},
		"an empty sponsor":                 {Role: RoleTreasurer, Spending: Spending{Sponsors: []string{""}}},
		"a largest total below 0":          {Role: RoleTreasurer, Spending: Spending{LargestTotal: -1}},
		"a largest total above any amount": {Role: RoleTreasurer, Spending: Spending{LargestTotal: hongbao.MaxAmount + 1}},
		"too many sponsors":                {Role: RoleTreasurer, Spending: Spending{Sponsors: make([]string, maxSponsors+1)}},
	} {
		require.Error(t, k.Check(time.Now()), name)
	}
	k := Key{Role: RoleTreasurer, Spending: Spending{Sponsors: []string{"acme"}, LargestTotal: 1}}
	require.NoError(t, k.Check(time.Now()))
}
