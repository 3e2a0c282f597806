package recovery_test

import (
	"fmt"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
)

// Redis has lost one of a campaign's two shards. The campaign is frozen there, and continues at its home. Once the home
// is closed, a person ends the campaign from the ledger.
func TestLostPlace(t *testing.T) {
	t.Parallel()
	w := setupOf(t, 4)
	wide := w.idAt(2)
	w.fundOver(t, wide, 0, 2)
	places := w.store.Places(wide, 2)
	require.Equal(t, w.store.Shard(0), places[1].Shard)
	w.grantOn(t, wide, places)
	w.loses(t, places[1].Shard)
	w.accepts(t)
	states := func() []string { return w.states(t, wide, places) }
	require.Equal(t, []string{"open", "frozen"}, states())

	at, err := w.ender().Progress(t.Context(), wide)
	require.NoError(t, err)
	require.Equal(t, "frozen", at.Redis.State)
	require.EqualValues(t, 1, at.Waiting.Open)
	word := lost(9_800)
	word.Campaign = wide
	_, err = w.ender().Refund(t.Context(), word)
	require.ErrorIs(t, err, payment.ErrSettling)
	require.ErrorContains(t, err, "`hongbao campaign close "+wide+" --early`")
	closed, err := places[0].Close(t.Context(), true, 0)
	require.NoError(t, err)

	half := w.ender()
	client := w.server.Client(t)
	client.AddHook(down(places[0].Keys.Refunded()))
	half.Store = w.over(client)
	_, err = half.Refund(t.Context(), word)
	require.ErrorContains(t, err, "run it again")
	require.Equal(t, []string{"closed", "refunded"}, states(), "the fault fired")
	at, err = w.ender().Progress(t.Context(), wide)
	require.NoError(t, err)
	require.Contains(t, at.Next(""), "hongbao campaign refund-lost "+wide+" --amount 9800")
	for range 2 {
		r, err := w.ender().Refund(t.Context(), word)
		require.NoError(t, err)
		require.Equal(t, []payment.Close{{Shard: 2, Seq: closed.Seq}, {Shard: 0}}, r.Closes)
		require.Equal(t, []string{"refunded", "refunded"}, states())
	}
	at, err = w.ender().Progress(t.Context(), wide)
	require.NoError(t, err)
	require.Empty(t, at.Next(""))
	st, _, err := w.store.Campaign(wide).Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{1000, 1000, 20, 200, 980, 9_800}, []int64{st.Packets, st.Loaded, st.Granted,
		int64(st.GrantedAmount), st.Left, int64(st.LeftAmount)}, "the sums of the shards equal the ledger's counts")
	left, err := w.store.Left(t.Context(), []string{wide})
	require.NoError(t, err)
	require.Equal(t, map[string]int64{wide: 980}, left)
	differences, err := books.Of(w.ledger.Tables()).CheckConservation(t.Context())
	require.NoError(t, err)
	require.Empty(t, differences)
}

func (w *world) grantOn(t *testing.T, id string, places []store.Place) {
	t.Helper()
	settler := w.settler(t)
	for _, k := range places {
		_, err := k.Group("balance").Create(t.Context())
		require.NoError(t, err)
		for i := range 10 {
			storetest.Grab(t, k.Shard, id, fmt.Sprintf("u%d-%d/r", k.Index(), i))
		}
		entries, err := k.Entries(t.Context(), "-", "+")
		require.NoError(t, err)
		for _, e := range entries {
			require.Nil(t, settler.Handle(t.Context(), testkit.Batch(e.Grants)))
		}
		raw, err := k.Group("balance").ReadNew(t.Context(), "w", 1000, 0)
		require.NoError(t, err)
		for i := range raw {
			events := stream.OfCampaign(id, stream.SeqRange{First: entries[i].Seq, Last: entries[i].Last()})
			_, err = k.Group("balance").Ack(t.Context(), events, []string{raw[i].ID})
			require.NoError(t, err)
		}
	}
}

func (w *world) states(t *testing.T, id string, places []store.Place) (list []string) {
	t.Helper()
	for _, k := range places {
		m, err := k.CampaignFields(t.Context())
		require.NoError(t, err)
		list = append(list, m.State)
	}
	return list
}
