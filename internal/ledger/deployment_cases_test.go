package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/testkit"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
)

func testFound(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.ledger
	_, err := l.Deployment(ctx)
	require.ErrorIs(t, err, ErrNotInitialized)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	_, err = l.Shard(ctx, 0)
	require.ErrorIs(t, err, ErrNotInitialized)

	want := Deployment{ID: "prod", KeyPrefix: "hb", Shards: 3}
	first, err := l.Initialize(ctx, want)
	require.NoError(t, err)
	require.NotEmpty(t, first.Founding)
	again, err := l.Initialize(ctx, want)
	require.NoError(t, err)
	require.Equal(t, first, again, "a repeated call returns the existing deployment")
	has, err := l.Deployment(ctx)
	require.NoError(t, err)
	require.Equal(t, first, has)

	for _, other := range []Deployment{
		{ID: "staging", KeyPrefix: "hb", Shards: 3}, {ID: "prod", KeyPrefix: "hb2", Shards: 3}, {ID: "prod",
			KeyPrefix: "hb", Shards: 4},
	} {
		_, err := l.Initialize(ctx, other)
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err), "%+v", other)
		require.ErrorContains(t, err,
			fmt.Sprintf(`"prod" with key prefix "hb" and 3 shards, not to deployment %q with key prefix %q and %d shards`,
				other.ID, other.KeyPrefix, other.Shards))
	}
	for i := range 3 {
		state, err := l.Shard(ctx, i)
		require.NoError(t, err)
		require.Equal(t, ShardState{}, state)
	}
	_, err = l.Shard(ctx, 3)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
}

func testFoundTogether(t *testing.T, f *fixture) {
	const many = 8
	var wg sync.WaitGroup
	has, errs := make([]Deployment, many), make([]error, many)
	for i := range many {
		wg.Go(func() {
			has[i], errs[i] = f.ledger.Initialize(t.Context(), Deployment{ID: "prod", KeyPrefix: "hb", Shards: 64})
		})
	}
	wg.Wait()
	for i := range many {
		require.NoError(t, errs[i])
		require.Equal(t, has[0], has[i], "all get the same founding")
	}
}

func testFoundInUse(t *testing.T, f *fixture) {
	f.create(t, "rain", 3)
	_, err := f.ledger.Initialize(t.Context(), Deployment{ID: "prod", KeyPrefix: "hb", Shards: 1})
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	require.ErrorContains(t, err, "rain")
	_, err = f.ledger.Deployment(t.Context())
	require.ErrorIs(t, err, ErrNotInitialized)
}

func testShardState(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.ledger
	_, err := l.Initialize(ctx, Deployment{ID: "prod", KeyPrefix: "hb", Shards: 2})
	require.NoError(t, err)
	one := ShardState{Epoch: 1, Token: "run-1"}
	require.NoError(t, l.SetShard(ctx, 1, 0, one))
	require.NoError(t, l.SetShard(ctx, 1, 0, one), "a repeat changes nothing")
	err = l.SetShard(ctx, 1, 0, ShardState{Epoch: 1, Token: "run-2"})
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "another server was first")
	require.NoError(t, l.SetShard(ctx, 1, 1, ShardState{Epoch: 2, Token: "run-2"}))
	err = l.SetShard(ctx, 1, 0, one)
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "an epoch never falls")
	for shard, want := range []ShardState{{}, {Epoch: 2, Token: "run-2"}} {
		has, err := l.Shard(ctx, shard)
		require.NoError(t, err)
		require.Equal(t, want, has)
	}
	err = l.SetShard(ctx, 7, 0, one)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
}

// AcceptLoss stores who accepted a loss and why, with the epoch in which the shard continues. If another process has
// opened the shard meanwhile, it stores nothing.
func testAcceptedLosses(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.ledger
	_, err := l.Initialize(ctx, Deployment{ID: "prod", KeyPrefix: "hb", Shards: 2})
	require.NoError(t, err)
	require.NoError(t, l.SetShard(ctx, 1, 0, ShardState{Epoch: 1, Token: "run-1"}))
	words, err := l.AcceptedLosses(ctx, 10)
	require.NoError(t, err)
	require.Empty(t, words)

	word := model.AcceptedLoss{Shard: 1, Epoch: 2, Decision: by("ann", "the disk is gone"),
		Lost: strings.Repeat("event 4711; ",
			1000)}
	require.NoError(t, l.AcceptLoss(ctx, 1, "run-2", word))
	require.NoError(t, l.AcceptLoss(ctx, 1, "run-2", word), "a repeat changes nothing")
	late := word
	late.By = "bob"
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(l.AcceptLoss(ctx, 1, "run-3", late)),
		"another process was first")
	for _, bad := range []model.AcceptedLoss{{Shard: 1, Epoch: 3, Decision: by("", "who?")},
		{Shard: 1, Epoch: 3, Decision: by("ann", "")}} {
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(l.AcceptLoss(ctx, 2, "run-3", bad)))
	}
	has, err := l.Shard(ctx, 1)
	require.NoError(t, err)
	require.Equal(t, ShardState{Epoch: 2, Token: "run-2"}, has)
	words, err = l.AcceptedLosses(ctx, 10)
	require.NoError(t, err)
	require.Len(t, words, 1)
	require.WithinDuration(t, time.Now(), words[0].At, time.Minute)
	word.At = words[0].At
	require.Equal(t, word, words[0])

	late.Shard, late.Epoch = 0, 1
	require.NoError(t, l.AcceptLoss(ctx, 0, "run-3", late))
	words, err = l.AcceptedLosses(ctx, 1)
	require.NoError(t, err)
	require.Len(t, words, 1)
	require.Equal(t, "bob", words[0].By, "the newest first")
}

func testHighestSeq(t *testing.T, f *fixture) {
	highest := func(shard int) int64 {
		seq, err := f.ledger.HighestSeq(t.Context(), shard)
		require.NoError(t, err)
		return seq
	}
	f.create(t, "rain", 10)
	f.create(t, "later", 10)
	require.Zero(t, highest(3))
	f.settles(t, grantsOf("rain", 1, 4)...)
	require.Equal(t, int64(4), highest(3))
	require.Zero(t, highest(2), "another shard has none")

	aside := grant("rain", 5)
	aside.Packet, aside.Seq = 11, 77 // not planned
	f.settles(t, aside)
	require.Equal(t, int64(77), highest(3), "a grant in quarantine counts")

	closed := stream.Entry{ID: "1-0", Kind: stream.EntryClose, Campaign: "later", Shard: 3, Seq: 99,
		Close: stream.Closing{
			Left: 10, LeftAmount: fundedFor(10),
		}}
	_, err := f.ledger.Refund(t.Context(), one(closed), 0)
	require.NoError(t, err)
	require.Equal(t, int64(99), highest(3), "the close of a refund counts")

	asked := grant("rain", 6)
	asked.Seq = 120
	_, _, err = f.Settler.Begin(t.Context(), asking("w1", 1), testkit.Batch([]hongbao.Grant{asked}))
	require.NoError(t, err)
	require.Equal(t, int64(120), highest(3), "a pending credit counts")

	for seqs, want := range map[stream.SeqRange]int64{{First: 1, Last: 1 << 40}: 120, {First: 100, Last: 119}: 0,
		{First: 2, Last: 3}: 3, {First: 5, Last: 77}: 77, {First: 78, Last: 119}: 99, {First: 120, Last: 120}: 120} {
		seq, err := f.ledger.HighestSeqIn(t.Context(), 3, seqs, 0)
		require.NoError(t, err)
		require.Equal(t, want, seq, "%v", seqs)
		seq, err = f.ledger.HighestSeqIn(t.Context(), 2, seqs, 0)
		require.NoError(t, err)
		require.Zero(t, seq, "another shard has none")
	}
	for before, want := range map[int64]int64{asked.Epoch: 3, asked.Epoch + 1: 120} {
		seq, err := f.ledger.HighestSeqIn(t.Context(), 3, stream.SeqRange{First: 2, Last: 3}, before)
		require.NoError(t, err)
		require.Equal(t, want, seq, "grants of epochs before %d", before)
	}
}

// EventsIn knows grants that are paid, in quarantine or pending, and the closes of refunds. It ignores other shards.
func testEventsIn(t *testing.T, f *fixture) {
	known := func(shard int, first, last int64) (campaigns []string, gap int64) {
		e, err := f.ledger.EventsIn(t.Context(), shard, stream.SeqRange{First: first, Last: last})
		require.NoError(t, err)
		return slices.Sorted(maps.Keys(e.Campaigns)), e.Gap
	}
	f.create(t, "rain", 10)
	f.create(t, "later", 10)
	f.settles(t, grantsOf("rain", 1, 4)...)
	aside := grant("rain", 5)
	aside.Packet = 11 // not planned
	f.settles(t, aside)
	_, _, err := f.Settler.Begin(t.Context(), asking("w1", 1), testkit.Batch(grantsOf("rain", 6, 6)))
	require.NoError(t, err)
	closed := stream.Entry{ID: "1-0", Kind: stream.EntryClose, Campaign: "later", Shard: 3, Seq: 7,
		Close: stream.Closing{Left: 10, LeftAmount: fundedFor(10)}}
	_, err = f.ledger.Refund(t.Context(), one(closed), 0)
	require.NoError(t, err)
	for _, c := range []struct {
		shard            int
		first, last, gap int64
		campaigns        []string
	}{
		{3, 1, 7, 0, []string{"rain"}},
		{3, 7, 7, 0, nil},
		{3, 7, 6, 0, nil},
		{3, 5, 8, 8, []string{"rain"}},
		{3, 1, 3 * eventsPage, 8, []string{"rain"}},
		{2, 1, 7, 1, nil},
	} {
		campaigns, gap := known(c.shard, c.first, c.last)
		require.Equal(t, c.gap, gap, "%+v", c)
		require.Equal(t, c.campaigns, campaigns, "%+v", c)
	}
	f.tamper(t, db.Stmt{SQL: `DELETE FROM grants WHERE packet = 3`})
	campaigns, gap := known(3, 1, 7)
	require.EqualValues(t, 3, gap)
	require.Equal(t, []string{"rain"}, campaigns)
}
