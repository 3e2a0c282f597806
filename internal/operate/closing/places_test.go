package closing_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// spread is a deployment of five shards. Campaign "rain" has ten packets on three of them, and one packet is granted on
// each of the three.
type spread struct {
	*bundle
	places []store.Place
	faults *faults
}

func setupSpread(t *testing.T) *spread {
	t.Helper()
	b := setupOver(t, testkit.Redis(t), 5, 3)
	s := &spread{bundle: b, places: b.store.Places("rain", 3), faults: &faults{lives: -1}}
	for j, k := range s.places {
		storetest.Grab(t, k.Shard, "rain", fmt.Sprint("u", j))
	}
	b.rdb = testkit.Redis(t).Client(t)
	b.rdb.AddHook(s.faults)
	b.store = b.store.Over(b.rdb)
	b.k, s.places = b.store.Home("rain").Shard, b.store.Places("rain", 3)
	b.Closer = b.closer()
	return s
}

func (s *spread) settleOn(k *store.Shard) {
	s.t.Helper()
	raw, err := k.Group("balance").ReadNew(s.t.Context(), "w1", 100, 0)
	require.NoError(s.t, err)
	for _, r := range raw {
		_, err := k.Group("balance").Ack(s.t.Context(), nil, []string{r.ID})
		require.NoError(s.t, err)
	}
}

func (s *spread) states() (list []string) {
	s.t.Helper()
	for _, k := range s.places {
		m, err := k.CampaignFields(s.t.Context())
		require.NoError(s.t, err)
		list = append(list, m.State)
	}
	return list
}

// faults is a Redis hook. It lets the commands of one shard time out, or all scripts fail as if the process had died.
type faults struct {
	mu     sync.Mutex
	silent string // key prefix of the shard that does not answer
	lives  int    // number of scripts that run before the process dies; it never dies if negative
}

func (f *faults) set(silent string, lives int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent, f.lives = silent, lives
}

func (f *faults) strikes(cmd redis.Cmder) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silent != "" && strings.Contains(fmt.Sprint(cmd.Args()...), f.silent) {
		return context.DeadlineExceeded
	}
	if f.lives >= 0 && cmd.Name() == "evalsha" {
		if f.lives == 0 {
			return errDied
		}
		f.lives--
	}
	return nil
}

func (f *faults) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *faults) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := f.strikes(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (f *faults) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if err := f.strikes(cmd); err != nil {
				for _, c := range cmds {
					c.SetErr(err)
				}
				return err
			}
		}
		return next(ctx, cmds)
	}
}

func tagOf(k *store.Shard) string { return strings.TrimSuffix(k.Keys.Meta(), "meta") }

// A dead letter on any shard of the campaign may still be paid. The refund fails until a person has decided about it.
func TestRefundWaitsForDecisionsOnEachShard(t *testing.T) {
	t.Parallel()
	s := setupSpread(t)
	s.addDeadLetter(s.places[2].Shard, "rain")
	_, err := s.Close(t.Context(), "rain", true)
	require.NoError(t, err)
	for _, k := range s.places {
		s.k = k.Shard
		s.settle(2)
	}
	_, err = s.Refund(t.Context(), closing.Order{Campaign: "rain", Amount: 80, Missing: 1})
	require.ErrorIs(t, err, closing.ErrMissing)
	require.ErrorContains(t, err, "1 of them are dead letters")
	require.Zero(t, s.ledger.posts)
}

// One shard does not answer. Close closes the other places, and returns an error and no partial result. A later call
// closes the last place. The refund waits until the group has finished every shard.
func TestCloseWithASilentShard(t *testing.T) {
	t.Parallel()
	s := setupSpread(t)
	for j, k := range s.places {
		s.faults.set(tagOf(k.Shard), -1)
		standing, err := s.Close(t.Context(), "rain", true)
		require.Zero(t, standing)
		require.ErrorContains(t, err, fmt.Sprintf("1 of its 3 shards: shard %d", k.Index()))
		require.True(t, hongbao.IsOutage(err), "%v", err)
		standing, err = s.Progress(t.Context(), "rain")
		require.Zero(t, standing)
		require.True(t, hongbao.IsOutage(err), "%v", err)
		s.faults.set("", -1)
		if j == 0 {
			require.Equal(t, []string{"open", "closed", "closed"}, s.states())
			_, err = s.Progress(t.Context(), "rain")
			require.ErrorIs(t, err, store.ErrNotClosed)
			_, err = s.Refund(t.Context(), order(70, time.Minute))
			require.ErrorIs(t, err, store.ErrNotClosed)
		}
	}
	standing, err := s.Close(t.Context(), "rain", true)
	require.NoError(t, err)
	require.Len(t, standing.Places, 3)
	require.EqualValues(t, 70, standing.Amount())
	again, err := s.Close(t.Context(), "rain", false)
	require.NoError(t, err)
	require.Equal(t, standing, again)

	s.ledger.grants = 3
	for j, k := range s.places {
		_, err = s.Refund(t.Context(), order(70, 0))
		require.ErrorIs(t, err, payment.ErrSettling)
		for i, other := range s.places {
			waits := fmt.Sprintf("finished shard %d up to event 0, the close is event 2", other.Index())
			require.Equal(t, i >= j, strings.Contains(err.Error(), waits), "%v", err)
		}
		s.settleOn(k.Shard)
	}
	s.faults.set(tagOf(s.places[1].Shard), -1)
	_, err = s.Refund(t.Context(), order(70, 0))
	require.True(t, hongbao.IsOutage(err), "%v", err)
	s.faults.set("", -1)
	require.Zero(t, s.ledger.posts)
	r, err := s.Refund(t.Context(), order(70, 0))
	require.NoError(t, err)
	want := make([]payment.Close, 3)
	for j, k := range s.places {
		want[j] = payment.Close{Shard: k.Index(), Seq: 2}
	}
	require.Equal(t, want, r.Closes)
	require.Equal(t, []string{"refunded", "refunded", "refunded"}, s.states())
}

// The process dies before each script of the close and of the refund, and runs again. Each place has one close, and the
// ledger posts one refund.
func TestEndOfPlacesDies(t *testing.T) {
	t.Parallel()
	s := setupSpread(t)
	deaths := 0
	for ; ; deaths++ {
		s.faults.set("", deaths)
		if _, err := s.Close(t.Context(), "rain", true); err == nil {
			break
		}
	}
	require.GreaterOrEqual(t, deaths, 1)
	s.faults.set("", -1)
	for _, k := range s.places {
		require.EqualValues(t, 2, s.rdb.XLen(t.Context(), k.Keys.Events()).Val(), "one grant, one close")
		s.settleOn(k.Shard)
	}
	s.ledger.grants = 3
	for deaths = 0; ; deaths++ {
		s.faults.set("", deaths)
		_, err := s.closer().Refund(t.Context(), s.row("rain"), order(70, 0))
		s.faults.set("", -1)
		if err == nil {
			break
		}
		require.Equal(t, 1, s.ledger.posts)
	}
	require.Positive(t, deaths)
	require.Equal(t, 1, s.ledger.posts)
	require.Equal(t, []string{"refunded", "refunded", "refunded"}, s.states())
}

// One place has a slow clock, so its window is still open. Close closes the other places, a paused one too, and a later
// call closes this place.
func TestCloseWithAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	s := setupSpread(t)
	over := func(k *store.Shard) {
		require.NoError(t, s.rdb.HSet(t.Context(), k.Keys.Campaign("rain"), "to", 1001).Err())
	}
	_, err := s.Close(t.Context(), "rain", false)
	require.ErrorContains(t, err, "close campaign rain: it is open, and its window is open until")
	require.NotContains(t, err.Error(), "shard", "all places return the same error")
	require.NoError(t, s.places[2].SetState(t.Context(), "paused", "open"))
	over(s.places[0].Shard)
	over(s.places[2].Shard)
	_, err = s.Close(t.Context(), "rain", false)
	require.ErrorContains(t, err, fmt.Sprintf("1 of its 3 shards: shard %d: close campaign rain: it is open",
		s.places[1].Index()))
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	require.Equal(t, []string{"closed", "open", "closed"}, s.states())
	storetest.Grab(t, s.places[1].Shard, "rain", "late") // users may still grab on this place
	over(s.places[1].Shard)
	standing, err := s.Close(t.Context(), "rain", false)
	require.NoError(t, err)
	require.EqualValues(t, 4, standing.Closed().Granted)
}

func TestCloseWithALostPlace(t *testing.T) {
	t.Parallel()
	s := setupSpread(t)
	require.NoError(t, s.rdb.Del(t.Context(), s.places[1].Keys.Campaign("rain")).Err())
	_, err := s.Close(t.Context(), "rain", true)
	require.ErrorIs(t, err, store.ErrNotInRedis)
	_, err = s.Refund(t.Context(), order(70, 0))
	require.ErrorIs(t, err, store.ErrNotInRedis)
	require.Zero(t, s.ledger.posts)
}

// One place is lost and another does not answer. The error is about the lost place, because a retry does not help
// there. If a place no longer has the campaign, which may have been refunded, the error is an outage.
func TestCloseWithALostPlaceAndASilentShard(t *testing.T) {
	t.Parallel()
	s := setupSpread(t)
	s.faults.set(tagOf(s.places[2].Shard), -1)
	require.NoError(t, s.rdb.HSet(t.Context(), s.places[1].Keys.Campaign("rain"), "state", "frozen").Err())
	_, err := s.Close(t.Context(), "rain", true)
	require.ErrorIs(t, err, store.ErrLost)
	require.False(t, hongbao.IsOutage(err), "%v", err)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	require.ErrorContains(t, err, fmt.Sprintf("shard %d: script close", s.places[2].Index()))
	require.NoError(t, s.rdb.Del(t.Context(), s.places[1].Keys.Campaign("rain")).Err())
	_, err = s.Close(t.Context(), "rain", true)
	require.ErrorIs(t, err, store.ErrNotInRedis)
	require.True(t, hongbao.IsOutage(err), "%v", err)
}

// A refunded campaign leaves its home first, then its other shards. It stays on them while the home does not answer, so
// that they never seem to have lost it. Once the campaign has left one shard, Close returns the refund from the ledger.
func TestRetirePlaces(t *testing.T) {
	t.Parallel()
	s := setupSpread(t)
	_, err := s.Close(t.Context(), "rain", true)
	require.NoError(t, err)
	for _, k := range s.places {
		s.settleOn(k.Shard)
	}
	s.ledger.grants = 3
	r, err := s.Refund(t.Context(), order(70, 0))
	require.NoError(t, err)
	retirer, err := closing.NewRetirer(closing.RetirerConfig{Store: s.store, Locks: s.locks, Log: s.log,
		Every: time.Second})
	require.NoError(t, err)
	home := fmt.Sprintf("shard %d", s.places[0].Index())
	s.faults.set(tagOf(s.places[0].Shard), -1)
	testkit.Eventually(t, 30*time.Second, func() bool { // retry until the clock of Redis has advanced
		gone, err := retirer.Retire(t.Context())
		require.Empty(t, gone)
		require.ErrorContains(t, err, home+": ")
		return strings.Count(err.Error(), "leaves its home, "+home+", first: ") == 2
	}, "the campaign is due on both other shards")
	s.faults.set("", -1)
	require.Equal(t, []string{"refunded", "refunded", "refunded"}, s.states())

	s.faults.set(tagOf(s.places[1].Shard), -1)
	gone, err := retirer.Retire(t.Context())
	require.ErrorContains(t, err, fmt.Sprintf("shard %d: ", s.places[1].Index()))
	require.NotEmpty(t, gone)
	s.faults.set("", -1)
	require.Equal(t, []string{"", "refunded", ""}, s.states())
	standing, err := s.Close(t.Context(), "rain", false)
	require.NoError(t, err)
	require.Equal(t, closing.Progress{Refund: &r}, standing)
	again, err := s.Refund(t.Context(), order(70, 0))
	require.NoError(t, err)
	require.Equal(t, r, again)
	_, err = retirer.Retire(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"", "", ""}, s.states())
}

// A campaign's home does not have the mark of the refund. While the home does not answer, only another campaign leaves
// a shared shard. Later the retirer marks the refund on the home, and the campaign leaves all its shards.
func TestRetireWithoutTheHome(t *testing.T) {
	t.Parallel()
	s := setupSpread(t)
	_, err := s.Close(t.Context(), "rain", true)
	require.NoError(t, err)
	for _, k := range s.places[1:] {
		_, err := k.Refunded(t.Context())
		require.NoError(t, err)
	}
	alone := s.refundedOn(s.places[1].Shard)
	retirer, err := closing.NewRetirer(closing.RetirerConfig{Store: s.store, Locks: s.locks, Log: s.log,
		Every: time.Second})
	require.NoError(t, err)
	s.faults.set(tagOf(s.places[0].Shard), -1)
	testkit.Eventually(t, 30*time.Second, func() bool { // retry until the clock of Redis has advanced
		gone, err := retirer.Retire(t.Context())
		require.Error(t, err)
		return slices.Equal([]string{alone}, gone)
	}, "the campaign that is on one shard only leaves Redis")
	s.faults.set("", -1)
	require.Equal(t, []string{"closed", "refunded", "refunded"}, s.states())
	testkit.Eventually(t, 30*time.Second, func() bool {
		_, err := retirer.Retire(t.Context())
		require.NoError(t, err)
		return slices.Equal([]string{"", "", ""}, s.states())
	}, "the campaign leaves all its shards")
}

// refundedOn creates a refunded campaign whose only place is this shard.
func (s *spread) refundedOn(k *store.Shard) (id string) {
	s.t.Helper()
	for i := 0; id == "" || s.store.Home(id).Index() != k.Index(); i++ {
		id = fmt.Sprint("alone-", i)
	}
	s.load(id, 1)
	_, err := k.Place(id).Close(s.t.Context(), true, 0)
	require.NoError(s.t, err)
	_, err = k.Place(id).Refunded(s.t.Context())
	require.NoError(s.t, err)
	return id
}

// A top-up is in the ledger, but not yet on every place: Close closes nothing. Once a place is lost, the packets can
// never arrive. Then Close closes the other places with the packets that they have.
func TestCloseWithoutWhatWasAdded(t *testing.T) {
	t.Parallel()
	s := setupSpread(t)
	s.ledger.packets = 16
	hash := s.rdb.HGet(t.Context(), s.places[1].Keys.Campaign("rain"), "hash").Val()
	require.NoError(t, s.places[1].Announce(t.Context(), &store.Announcement{
		Campaign: "rain", Hash: hash, Generation: 2, Plan: "h2", Packets: 16, Total: 160, Share: 5, ShareAmount: 50,
	}))
	_, err := s.Close(t.Context(), "rain", true)
	require.ErrorIs(t, err, store.ErrRefilling)
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	require.Equal(t, []string{"open", "open", "open"}, s.states())
	require.NoError(t, s.rdb.HSet(t.Context(), s.places[2].Keys.Campaign("rain"), "state", "frozen").Err())
	_, err = s.Close(t.Context(), "rain", true)
	require.ErrorIs(t, err, store.ErrLost)
	require.Equal(t, []string{"closed", "closed", "frozen"}, s.states())
	for j, left := range []int64{3, 2} {
		e, err := s.places[j].CloseOf(t.Context())
		require.NoError(t, err)
		require.Equal(t, left, e.Close.Left)
	}
}
