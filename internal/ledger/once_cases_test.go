package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func (f *fixture) exists(t testing.TB, id string) bool {
	t.Helper()
	_, found, err := f.ledger.Campaign(t.Context(), id)
	require.NoError(t, err)
	return found
}

// creation returns a request that creates a campaign, and the function that carries it out.
func (f *fixture) creation(t testing.TB, id string) (access.Request, func(context.Context) ([]byte, error)) {
	r := access.Request{Caller: "k1", Key: "a", Hash: "create " + id}
	c := testCampaign(t, id, 3)
	return r, func(ctx context.Context) ([]byte, error) {
		_, err := f.ledger.CreateCampaign(ctx, c)
		return created(id), err
	}
}

// created returns the result of the request that creates campaign id.
func created(id string) []byte { return []byte(`{"created": "` + id + `"}`) }

func never(context.Context) ([]byte, error) { panic("it was done twice") }

func testOnce(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.ledger
	r, do := f.creation(t, "rain")
	answer, again, err := l.Once(ctx, r, do)
	require.NoError(t, err)
	require.False(t, again)
	require.Equal(t, created("rain"), answer)
	require.True(t, f.exists(t, "rain"))
	for range 2 {
		answer, again, err = l.Once(ctx, r, never)
		require.NoError(t, err)
		require.True(t, again)
		require.Equal(t, created("rain"), answer)
	}
	other := r
	other.Hash = "create snow"
	_, _, err = l.Once(ctx, other, never)
	require.ErrorIs(t, err, access.ErrKeyReused)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	other.Caller = "k2"
	_, do = f.creation(t, "snow")
	_, again, err = l.Once(ctx, other, do)
	require.NoError(t, err)
	require.False(t, again, "keys are separate for each caller")
	for _, key := range []string{"", "a b", "ä", strings.Repeat("k", 256), "a\n"} {
		bad := r
		bad.Key = key
		_, _, err = l.Once(ctx, bad, never)
		require.ErrorIs(t, err, access.ErrKeyRequired, "%q", key)
	}
	f.holds(t, "rain", nil)

	// After a day the key can be used for another request.
	f.tamper(t, db.Stmt{SQL: `UPDATE idempotency SET claimed_at = claimed_at - $1`, Args: []any{onceAge.Milliseconds() + 1000}})
	answer, again, err = l.Once(ctx, r, func(context.Context) ([]byte, error) { return []byte("{}"), nil })
	require.NoError(t, err)
	require.False(t, again)
	require.Equal(t, "{}", string(answer))
	var left int64
	left, _, err = tables.Ask("count", `SELECT COUNT(*) FROM idempotency`, nil, tables.Number).One(ctx, l.tables)
	require.NoError(t, err)
	require.EqualValues(t, 1, left, "the expired rows were deleted")
}

// testOnceFails checks that a failed request is rolled back completely, even if it ignores the error of a write. The
// key can be used again.
func testOnceFails(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.ledger
	r, do := f.creation(t, "rain")
	late := errors.New("the plan was not good")
	_, again, err := l.Once(ctx, r, func(ctx context.Context) ([]byte, error) {
		if answer, err := do(ctx); err != nil {
			return answer, err
		}
		_, found, err := l.Campaign(ctx, "rain")
		require.NoError(t, err)
		require.True(t, found, "the request sees its own writes")
		return nil, late
	})
	require.ErrorIs(t, err, late)
	require.False(t, again)
	require.False(t, f.exists(t, "rain"))
	require.Panics(t, func() {
		_, _, _ = l.Once(ctx, r, func(ctx context.Context) ([]byte, error) {
			_, _ = do(ctx)
			panic("a fault of this build")
		})
	})
	require.False(t, f.exists(t, "rain"))
	r.Key = "b" // the panic has left key "a" claimed
	_, _, err = l.Once(ctx, r, func(ctx context.Context) ([]byte, error) {
		_, err := do(ctx)
		return nil, err
	})
	require.ErrorContains(t, err, "empty")
	require.False(t, f.exists(t, "rain"), "a request with an empty result is rolled back")

	calls := 0
	answer, again, err := l.Once(ctx, r, func(ctx context.Context) ([]byte, error) {
		if calls++; calls == 1 { // a write fails, but the request continues: Once runs all of it again
			_, err := l.CreateCampaign(ctx, testCampaign(t, "snow", 2))
			require.NoError(t, err)
			require.Error(t, l.tables.Write(ctx, func(context.Context, db.Txn) ([]db.Stmt, error) { return nil, errors.New("no") }))
		}
		return do(ctx)
	})
	require.NoError(t, err)
	require.False(t, again)
	require.Equal(t, 2, calls)
	require.NotEmpty(t, answer)
	require.True(t, f.exists(t, "rain"))
	require.False(t, f.exists(t, "snow"))
}

// testOnceUnderWay repeats a request while the first one runs: the repeat is refused. After the claim has expired, a
// repeat takes over, and the first request is rolled back.
func testOnceUnderWay(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.ledger
	r, do := f.creation(t, "rain")
	_, snow := f.creation(t, "snow")
	_, _, err := l.Once(ctx, r, func(ctx context.Context) ([]byte, error) {
		_, _, err := l.Once(t.Context(), r, never)
		require.ErrorIs(t, err, access.ErrUnderWay)
		require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
		f.tamper(t, db.Stmt{SQL: `UPDATE idempotency SET claimed_at = claimed_at - $1`, Args: []any{onceClaim.Milliseconds() + 1}})
		answer, again, err := l.Once(t.Context(), r, do)
		require.NoError(t, err)
		require.False(t, again, "the expired claim is taken over")
		require.NotEmpty(t, answer)
		return snow(ctx) // the first request was slow, not dead
	})
	require.ErrorIs(t, err, access.ErrUnderWay)
	require.True(t, f.exists(t, "rain"))
	require.False(t, f.exists(t, "snow"), "the effect of the slow request is rolled back")
	answer, again, err := l.Once(ctx, r, never)
	require.NoError(t, err)
	require.True(t, again)
	require.Equal(t, created("rain"), answer)
}

func testOnceTogether(t *testing.T, f *fixture) {
	const many = 8
	r, do := f.creation(t, "rain")
	var done atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, many)
	for i := range many {
		wg.Go(func() {
			errs[i] = retry.Poll(t.Context(), 10*time.Millisecond, func() (bool, error) {
				answer, again, err := f.ledger.Once(t.Context(), r, do)
				if errors.Is(err, access.ErrUnderWay) {
					return false, nil
				}
				if err == nil && !again {
					done.Add(1)
				}
				if err == nil && !bytes.Equal(answer, created("rain")) {
					return true, fmt.Errorf("another answer: %s", answer)
				}
				return true, err
			})
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.EqualValues(t, 1, done.Load())
	f.holds(t, "rain", nil)
}

// testOnceAnswerLost loses the response to the COMMIT of a request. The repeated request gets the stored result.
func testOnceAnswerLost(t *testing.T, s *faulty) {
	proxy, config := s.behindProxy(t)
	f := newFixture(t, config)
	r, do := f.creation(t, "rain")
	_, _, err := f.ledger.Once(t.Context(), r, func(ctx context.Context) ([]byte, error) {
		answer, err := do(ctx)
		if config.kind() == mysql.Name {
			proxy.SwallowWholeAnswers(1, func(request []byte) bool { return bytes.HasSuffix(request, []byte("COMMIT")) },
				testkit.MySQLAnswered)
		} else {
			s.loseCommit(proxy)
		}
		return answer, err
	})
	require.Equal(t, 1, proxy.Fired().Swallowed, "the fault did not happen")
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%v", err)
	answer, again, err := f.ledger.Once(t.Context(), r, never)
	require.NoError(t, err)
	require.True(t, again)
	require.Equal(t, created("rain"), answer)
	require.True(t, f.exists(t, "rain"))
}
