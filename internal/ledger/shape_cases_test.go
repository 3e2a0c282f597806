package ledger

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

func testShape(t *testing.T, f *fixture) {
	f.create(t, "rain", 20)
	b, err := f.ledger.Bounds(t.Context(), "rain")
	require.NoError(t, err)
	require.Equal(t, Bounds{}, b, "nothing is granted")
	other := testCampaign(t, "other", 20)
	other.Spec.Name = `Tom & "Jerry" <3`
	_, err = f.ledger.CreateCampaign(t.Context(), canonical(t, other.Spec))
	require.NoError(t, err)
	f.settles(t, grantsOf("other", 1, 20)...)
	grants := grantsOf("rain", 1, 10)
	f.settles(t, grants...)
	first := grants[0].Time.UnixMilli()
	want := Bounds{Grants: 10, Low: grants[0].Amount, High: grants[0].Amount, First: first, Last: first + 9}
	for _, g := range grants {
		want.Low, want.High = min(want.Low, g.Amount), max(want.High, g.Amount)
	}
	b, err = f.ledger.Bounds(t.Context(), "rain")
	require.NoError(t, err)
	require.Equal(t, want, b)
	times, err := f.ledger.Times(t.Context(), "rain", first, 4)
	require.NoError(t, err)
	require.Equal(t, []Step{{first, 4}, {first + 4, 4}, {first + 8, 2}}, times)
	const width = 3
	count := map[int64]int64{}
	for _, g := range grants {
		count[int64(g.Amount-(g.Amount-b.Low)%width)]++
	}
	amounts, err := f.ledger.Amounts(t.Context(), "rain", b.Low, width)
	require.NoError(t, err)
	for i, s := range amounts {
		require.Equal(t, count[s.From], s.Grants)
		require.True(t, i == 0 || amounts[i-1].From < s.From, "in their order")
	}
	require.Len(t, amounts, len(count))
	list, err := f.ledger.NewestCampaigns(t.Context(), CampaignSearch{Limit: 1})
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Contains(t, []string{"rain", "other"}, list[0].Spec.ID)
	require.Equal(t, hongbao.Amount(0), list[0].Refunded)
	for text, ids := range map[string][]string{
		"RAIN": {"rain"}, "othe": {"other"}, "": {"other", "rain"}, "r%n": nil, "r_in": nil, "!": nil, "'": nil,
		"tom & ": {"other"}, `"JERRY" <`: {"other"}, "&": {"other"},
	} {
		list, err := f.ledger.NewestCampaigns(t.Context(), CampaignSearch{Text: text, Unrefunded: true, Limit: 10})
		require.NoError(t, err)
		var found []string
		for i := range list {
			found = append(found, list[i].Spec.ID)
		}
		require.ElementsMatch(t, ids, found, text)
	}
	for scope, ids := range map[string][]string{
		"rain": {"rain"}, "ra*": {"rain"}, "ra": nil, "%*": nil, "r_in": nil, "oth*,rain": {"other", "rain"}, "*": {"other", "rain"},
	} {
		list, err := f.ledger.NewestCampaigns(t.Context(), CampaignSearch{Scope: strings.Split(scope, ","), Limit: 10})
		require.NoError(t, err)
		var found []string
		for i := range list {
			found = append(found, list[i].Spec.ID)
		}
		require.ElementsMatch(t, ids, found, scope)
	}
	all, err := f.ledger.NewestCampaigns(t.Context(), CampaignSearch{Limit: 10})
	require.NoError(t, err)
	second, err := f.ledger.NewestCampaigns(t.Context(), CampaignSearch{Skip: 1, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, all[1:], second)
}
