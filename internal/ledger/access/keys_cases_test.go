package access

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
)

func testKeys(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.access
	drawn, _ := access.NewKey(access.RoleOperator, []string{"rain", "spring-*"})
	drawn.Role, drawn.Sponsors, drawn.LargestTotal = access.RoleTreasurer, []string{"acme", "b&co"}, hongbao.MaxAmount
	drawn.Expires, drawn.Note = time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond), "Ann's 🧧 laptop"
	first, err := l.AddKey(ctx, drawn)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), first.Created, time.Minute)
	drawn.Created = first.Created
	require.Equal(t, drawn, first)
	// Keys that were created in the same millisecond have no defined order.
	require.Eventually(t, func() bool { return time.Since(first.Created) > 2*time.Millisecond }, 10*time.Second,
		time.Millisecond)
	short, _ := access.NewKey(access.RoleViewer, nil)
	short.Expires = time.Now().Add(3 * time.Second)
	_, err = l.AddKey(ctx, short)
	require.NoError(t, err)

	live := func() []access.Key {
		keys, err := l.LiveKeys(ctx)
		require.NoError(t, err)
		return keys
	}
	require.Eventually(t, func() bool { return len(live()) == 1 }, 30*time.Second, 20*time.Millisecond, "one has expired")
	require.Equal(t, first, live()[0])
	client, _ := access.NewKey(access.RoleClient, []string{})
	client.Client = "worker"
	_, err = l.AddKey(ctx, client)
	require.NoError(t, err)
	require.Equal(t, "worker", live()[1].Client)
	_, err = l.RevokeKey(ctx, client.ID)
	require.NoError(t, err)
	bad, _ := access.NewKey("root", nil)
	_, err = l.AddKey(ctx, bad)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))

	rotates(t, l, first, live)
	gone, err := l.RevokeKey(ctx, first.ID)
	require.NoError(t, err)
	require.False(t, gone.Revoked.IsZero())
	again, err := l.RevokeKey(ctx, first.ID)
	require.NoError(t, err)
	require.Equal(t, gone, again, "a repeat changes nothing")
	require.Empty(t, live())
	_, hash := access.NewSecret(first.ID)
	for _, id := range []string{first.ID, short.ID, "nobody"} {
		_, err = l.RotateKey(ctx, id, access.Rotation{Hash: hash})
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), id)
	}
	_, err = l.RevokeKey(ctx, "nobody")
	require.ErrorContains(t, err, "hongbao key list")
	all, err := l.Keys(ctx)
	require.NoError(t, err)
	require.Len(t, all, 3)
	require.Equal(t, []string{first.ID, short.ID}, []string{all[0].ID, all[1].ID}, "in the order in which they were made")
}

// rotates rotates the only live key.
func rotates(t *testing.T, l Access, first access.Key, live func() []access.Key) {
	t.Helper()
	ctx := t.Context()
	_, hash := access.NewSecret(first.ID)
	turned, err := l.RotateKey(ctx, first.ID, access.Rotation{Hash: hash, Overlap: time.Hour})
	require.NoError(t, err)
	require.Equal(t, first.Hash, turned.OldHash)
	require.Equal(t, hash, turned.Hash)
	require.WithinDuration(t, time.Now().Add(time.Hour), turned.OldUntil, time.Minute)
	require.Equal(t, turned, live()[0])
	require.Equal(t, first.Expires, turned.Expires, "a rotation keeps the end")
	_, other := access.NewSecret(first.ID)
	_, err = l.RotateKey(ctx, first.ID, access.Rotation{Hash: other, Overlap: time.Hour})
	require.ErrorContains(t, err, "--overlap 0s", "as after an unknown COMMIT: programs use the first secret")
	require.Equal(t, turned, live()[0])
	later := first.Expires.Add(time.Hour)
	_, err = l.RotateKey(ctx, first.ID, access.Rotation{Hash: hash, Expires: &later})
	require.NoError(t, err)
	require.Equal(t, later, live()[0].Expires)
	turned, err = l.RotateKey(ctx, first.ID, access.Rotation{Hash: other})
	require.NoError(t, err)
	require.Equal(t, hash, turned.OldHash)
	require.Equal(t, other, turned.Hash, "without an overlap all older secrets end")
	past := time.Now().Add(-time.Hour)
	_, err = l.RotateKey(ctx, first.ID, access.Rotation{Hash: hash, Expires: &past})
	require.ErrorContains(t, err, "it would have expired")
	require.Equal(t, turned, live()[0])
}

// testKeysTogether rotates one key in many concurrent calls. Each call replaces a different secret.
func testKeysTogether(t *testing.T, f *fixture) {
	k, _ := access.NewKey(access.RoleViewer, nil)
	_, err := f.access.AddKey(t.Context(), k)
	require.NoError(t, err)
	const many = 8
	var wg sync.WaitGroup
	olds, errs := make([]string, many), make([]error, many)
	for i := range many {
		wg.Go(func() {
			_, hash := access.NewSecret(k.ID)
			var has access.Key
			has, errs[i] = f.access.RotateKey(t.Context(), k.ID, access.Rotation{Hash: hash})
			olds[i] = has.OldHash
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for i := range many {
		require.NoError(t, errs[i])
		require.False(t, seen[olds[i]], "two calls replaced the same secret")
		seen[olds[i]] = true
	}
	require.True(t, seen[k.Hash])
}
