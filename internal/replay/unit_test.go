package replay

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// In any time not more than the rate and one batch go.
func TestPace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate         float64
		batch, wants int
	}{{100, 20, 20}, {100, 2000, 100}, {0.5, 2000, 1}, {0, 2000, 2000}} {
		synctest.Test(t, func(t *testing.T) {
			p := newPace(c.rate, c.batch)
			require.Equal(t, c.wants, p.batch)
			start := time.Now()
			for sent := 0; sent < 50*p.batch; sent += p.batch {
				if c.rate > 0 {
					require.LessOrEqual(t, float64(sent), c.rate*time.Since(start).Seconds()+float64(p.batch)+1e-6)
				}
				require.NoError(t, p.wait(t.Context(), p.batch))
			}
			if c.rate > 0 {
				require.InEpsilon(t, float64(49*p.batch)/c.rate, time.Since(start).Seconds(), 0.01, "and not much slower")
			} else {
				require.Zero(t, time.Since(start))
			}
		})
	}
}

func TestPaceEnds(t *testing.T) {
	t.Parallel()
	p := newPace(0.001, 1)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, p.wait(ctx, 1))
	cancel()
	require.ErrorIs(t, p.wait(ctx, 1), context.Canceled)
	require.False(t, sleep(ctx, time.Hour))
}

type nobody struct{}

func (nobody) Handle(context.Context, []hongbao.Grant) []error { return nil }

// Every problem is named at once.
func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Rate: math.NaN(), Patience: -1})
	for _, name := range []string{"Redis and Space", "Handler", "Name", "Target", "DoneSink", "BatchGrants", "Rate",
		"Parallel", "Patience"} {
		require.ErrorContains(t, err, name)
	}
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	space, err := shards.NewLayout(hongbao.Space{Prefix: "hb", Shards: 2})
	require.NoError(t, err)
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	r, err := New(Config{Redis: rdb, Space: space, Name: "x", Target: "t", DoneSink: "d", Handler: nobody{},
		BatchGrants: 1, Parallel: 1})
	require.NoError(t, err)
	nine := 9
	now := time.Now()
	_, err = r.Run(t.Context(), Options{Dead: "no:sink", Filter: Filter{
		Shard: &nine, Seqs: hongbao.SeqRange{First: 5, Last: 4}, Campaign: "a b", User: "a b", From: now, To: now,
	}})
	for _, name := range []string{"no:sink", "shard 9", "seqs 5 to 4", "campaign", "user", "that is no time"} {
		require.ErrorContains(t, err, name)
	}
	_, err = r.Run(t.Context(), Options{Filter: Filter{Seqs: hongbao.SeqRange{First: 1, Last: 2}}})
	require.ErrorContains(t, err, "say of which shard")
	_, err = NewLetters(LettersConfig{})
	require.Error(t, err)
}

// A handler that can't be understood stops the replay.
func TestHandlerThatLies(t *testing.T) {
	t.Parallel()
	d := deliverer{handler: liar{}, pace: newPace(0, 10),
		done: func(context.Context, []hongbao.Grant) error { return nil }}
	err := d.deliver(t.Context(), make([]hongbao.Grant, 3))
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
}

type liar struct{}

func (liar) Handle(context.Context, []hongbao.Grant) []error { return make([]error, 1) }
