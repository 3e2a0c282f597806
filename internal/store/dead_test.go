package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

func TestDead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	ids := b.events(t, "rain", 2)
	b.group(t, "kafka")
	raw := b.read(t, "kafka", "w1", 9)
	e, err := stream.ParseEntry(0, raw[0].ID, raw[0].Values)
	require.NoError(t, err)
	letter := func(at int, last bool) store.Letter {
		return store.Letter{
			Group: "kafka", Consumer: "w1", EntryID: ids[0], Grant: &e.Grants[at], Last: last, Class: hongbao.ClassPermanent,
			Reason: strings.Repeat("x", 5000), Attempts: 4,
		}
	}
	stranger := letter(0, true)
	stranger.Consumer = "w2"
	written, err := b.k.DeadLetter(ctx, stranger)
	require.NoError(t, err)
	require.False(t, written, "w2 does not have the entry")
	for _, want := range []bool{true, false} {
		written, err = b.k.DeadLetter(ctx, letter(0, false))
		require.NoError(t, err)
		require.Equal(t, want, written)
	}
	require.Contains(t, b.owners(t, "kafka"), ids[0], "grant 2 is left")
	written, err = b.k.DeadLetter(ctx, letter(1, true))
	require.NoError(t, err)
	require.True(t, written)
	require.Empty(t, b.owners(t, "kafka"))
	written, err = b.k.DeadLetter(ctx, letter(1, true))
	require.NoError(t, err)
	require.False(t, written)

	letters, err := b.rdb.XRange(ctx, b.k.Keys.Dead("kafka"), "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, letters, 2)
	v := letters[1].Values
	require.Equal(t, "2", v["v"])
	head := strings.Fields(strings.Split(raw[0].Values[1], "\n")[0])
	require.Equal(t, store.GrantLine(&e.Grants[1]), v["grant"])
	require.Equal(t, []any{"kafka", ids[0], "2", "permanent", "4", strings.Join([]string{head[0], head[1], "2", head[3], head[4],
		head[5]}, " ") + "\n" + store.GrantLine(&e.Grants[1])},
		[]any{v["group"], v["entry"], v["seq"], v["class"], v["attempts"], v["entry.3"]})
	require.Len(t, v["reason"], store.MaxReason)
	done, err := b.k.Group("kafka").Done(ctx, stream.SeqRange{First: 1, Last: 3})
	require.NoError(t, err)
	require.Equal(t, []bool{true, true, false}, []bool{done.Has(1), done.Has(2), done.Has(3)})
}

// An entry that can't be read becomes one dead letter, with all its fields.
func TestDeadWholeEntry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	require.NoError(t, b.rdb.Do(ctx, "XADD", b.k.Keys.Events(), "*", "v", "1", "junk", "a\nb\x00").Err())
	b.group(t, "kafka")
	raw := b.read(t, "kafka", "w1", 9)
	letter := store.Letter{Group: "kafka", Consumer: "w1", EntryID: raw[0].ID, Last: true, Class: hongbao.ClassPermanent,
		Reason: "no", Attempts: 1}
	for _, want := range []bool{true, false} {
		written, err := b.k.DeadLetter(ctx, letter)
		require.NoError(t, err)
		require.Equal(t, want, written)
	}
	letters, err := b.rdb.XRange(ctx, b.k.Keys.Dead("kafka"), "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, letters, 1)
	require.Equal(t, "a\nb\x00", letters[0].Values["entry.junk"])
	require.Empty(t, b.owners(t, "kafka"))
}

// Every grant of a large entry becomes a dead letter. The letters together use as much memory as the entry, instead
// of one copy of the entry each.
func TestDeadLettersOfALargeEntry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	b.events(t, "rain", stream.MaxEntryGrants)
	b.group(t, "kafka")
	raw := b.read(t, "kafka", "w1", 9)
	e, err := stream.ParseEntry(0, raw[0].ID, raw[0].Values)
	require.NoError(t, err)
	require.Len(t, e.Grants, stream.MaxEntryGrants)
	for i := range e.Grants {
		_, err := b.k.DeadLetter(ctx, store.Letter{Group: "kafka", Consumer: "w1", EntryID: e.ID,
			Grant: &e.Grants[i], Last: i == len(e.Grants)-1, Class: hongbao.ClassPermanent, Reason: "no", Attempts: 1})
		require.NoError(t, err)
	}
	letters, err := b.rdb.XRange(ctx, b.k.Keys.Dead("kafka"), "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, letters, len(e.Grants))
	for i, l := range letters {
		one, err := stream.ParseEntry(0, e.ID, []string{"3", l.Values["entry.3"].(string)})
		require.NoError(t, err)
		require.Equal(t, []hongbao.Grant{e.Grants[i]}, one.Grants, "the letter parses as an entry with one grant")
	}
}
