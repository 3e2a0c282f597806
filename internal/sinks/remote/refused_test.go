package remote

import (
	"github.com/hongbao-project/hongbao/internal/testkit"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// refuses makes the bank refuse credits of these accounts with a status and no error code.
func (b *bank) refuses(status int, accounts ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = map[string]int{}
	for _, a := range accounts {
		b.refused[a] = status
	}
}

// The remote refuses every grant of account u3 without an error code, and pays the other accounts. Only u3's grants
// fail. As soon as another account has been paid, each of these failures counts as an attempt.
func TestOneAccountIsRefused(t *testing.T) {
	t.Parallel()
	for _, status := range []int{403, 404} {
		for name, change := range kinds {
			t.Run(http.StatusText(status)+", "+name, func(t *testing.T) {
				t.Parallel()
				b, l := newBank(t), newBooks()
				b.refuses(status, "u3")
				h := newHandler(t, b, l, change, func(c *Config) { c.Concurrency = 1 })
				var others, own []hongbao.Grant
				for _, g := range grants(1, 14) {
					if g.User == "u3" {
						own = append(own, g)
					} else {
						others = append(others, g)
					}
				}
				errs := h.Handle(t.Context(), testkit.Batch(grants(1, 14)))
				for i, g := range grants(1, 14) {
					require.False(t, hongbao.IsOutage(errs[i]), "the shard would stop: %v", errs[i])
					require.Equal(t, g.User == "u3", errs[i] != nil, "%v", errs[i])
				}
				require.True(t, hongbao.IsWaiting(errs[2]), "no other account had succeeded yet: %v", errs[2])
				require.Len(t, own, 2)
				for range 3 {
					for _, err := range h.Handle(t.Context(), testkit.Batch(own)) {
						require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%v", err)
						require.False(t, hongbao.IsWaiting(err) || hongbao.IsOutage(err), "others succeeded, so an attempt counts: %v",
							err)
					}
				}
				b.holds(t, others)
				b.refuses(status)
				require.Nil(t, h.Handle(t.Context(), testkit.Batch(own)))
				b.holds(t, grants(1, 14))
			})
		}
	}
}

// Only one account is refused, and no other account has succeeded. Its grants wait without an attempt until another
// account's credit succeeds.
func TestRefusedAlone(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.refuses(403, "u3")
	h := newHandler(t, b, l)
	for range 3 {
		require.True(t, hongbao.IsWaiting(h.Handle(t.Context(), testkit.Batch(grants(3, 3)))[0]))
		require.True(t, hongbao.IsWaiting(h.Handle(t.Context(), testkit.Batch(grants(10, 10)))[0]), "a repeat shows nothing new")
	}
	require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(4, 4))))
	err := h.Handle(t.Context(), testkit.Batch(grants(3, 3)))[0]
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	require.False(t, hongbao.IsWaiting(err) || hongbao.IsOutage(err), "%v", err)
}

// At the end of a campaign the last accounts are refused. No other account can show whether all accounts are refused.
// The grants wait for maxHold; then attempts count, so that they become dead letters and the campaign can end.
func TestLastAccountsAreRefused(t *testing.T) {
	t.Parallel()
	for name, accounts := range map[string][]string{"one": {"u3"}, "two": {"u3", "u4"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			h := newHandler(t, b, l, func(c *Config) { c.BreakerOpen = time.Millisecond })
			start, late := time.Now(), time.Duration(0)
			h.now = func() time.Time { return start.Add(late) }
			require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 2))))
			b.refuses(403, accounts...)
			last := grants(3, int64(2+len(accounts)))
			for _, late = range []time.Duration{0, time.Minute, maxHold - time.Second} {
				for _, err := range h.Handle(t.Context(), testkit.Batch(last)) {
					require.True(t, hongbao.IsWaiting(err) || hongbao.IsOutage(err), "after %s: %v", late, err)
				}
			}
			late = maxHold + time.Minute
			for _, err := range h.Handle(t.Context(), testkit.Batch(last)) {
				require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%v", err)
				require.False(t, hongbao.IsWaiting(err) || hongbao.IsOutage(err), "an attempt counts: %v", err)
			}
			b.refuses(403)
			require.Nil(t, h.Handle(t.Context(), testkit.Batch(last)))
			b.refuses(403, accounts...)
			require.True(t, hongbao.IsWaiting(h.Handle(t.Context(), testkit.Batch(grants(10, 10)))[0]), "a new refusal waits again")
			require.Zero(t, l.left())
		})
	}
}

// Two accounts are refused and no credit has succeeded, so the first call reports an outage. A repeated refusal of the
// same two accounts must not report one again. So the consumer reaches a third account, whose success shows that the
// remote works.
func TestTwoBadAccountsStopNoShard(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.refuses(403, "u3", "u4")
	h := newHandler(t, b, l)
	outages := 0
	require.Eventually(t, func() bool { // repeats like a consumer during an outage
		for _, err := range h.Handle(t.Context(), testkit.Batch(grants(3, 4))) {
			if hongbao.IsOutage(err) {
				outages++
				return false
			}
			require.True(t, hongbao.IsWaiting(err), "%v", err)
		}
		return true
	}, patient, tick)
	require.Positive(t, outages)
	require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(5, 6))))
	for _, err := range h.Handle(t.Context(), testkit.Batch(grants(3, 4))) {
		require.False(t, hongbao.IsWaiting(err) || hongbao.IsOutage(err), "%v", err)
	}
	require.Zero(t, l.left())
}

// If every account is refused, this is an outage. Few requests are sent, and no attempt is counted.
func TestEverybodyIsRefused(t *testing.T) {
	t.Parallel()
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			b.refuses(403, "u0", "u1", "u2", "u3", "u4", "u5", "u6")
			h := newHandler(t, b, l, change, func(c *Config) { c.Concurrency = 1 })
			errs := h.Handle(t.Context(), testkit.Batch(grants(1, 100)))
			outages := 0
			for _, err := range errs {
				require.True(t, hongbao.IsWaiting(err) || hongbao.IsOutage(err), "%v", err)
				if hongbao.IsOutage(err) {
					outages++
				}
			}
			require.Greater(t, outages, 50)
			require.Less(t, b.all(), 20, "then requests stop for BreakerOpen")
			b.refuses(403)
			require.Eventually(t, func() bool { return h.Handle(t.Context(), testkit.Batch(grants(1, 100))) == nil }, patient, tick)
			b.holds(t, grants(1, 100))
			require.Zero(t, l.left())
		})
	}
}

// An error code of the API decides whether the remote refuses this credit or every request.
func TestRefusedWithACode(t *testing.T) {
	t.Parallel()
	for _, status := range []int{403, 404, 422} {
		b, l := newBank(t), newBooks()
		b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) {
			b.say(w, status, map[string]string{"code": "credit_refused"})
		})
		for _, err := range newHandler(t, b, l).Handle(t.Context(), testkit.Batch(grants(1, 2))) {
			require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), "%d: %v", status, err)
		}
		require.Zero(t, l.left())
	}
	b, l := newBank(t), newBooks()
	b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) {
		b.say(w, http.StatusUnauthorized, map[string]string{"code": "unauthorized"})
	})
	require.True(t, hongbao.IsOutage(newHandler(t, b, l).Handle(t.Context(), testkit.Batch(grants(1, 1)))[0]))
}

// The remote refuses queries about one account. The other grants are done, and no credit is requested again.
func TestQuestionIsRefused(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { b.book(c); drop(w) })
	good := b.Config.Handler
	b.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/v1/credits/prod:rain:3" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		good.ServeHTTP(w, r)
	})
	h := newHandler(t, b, l, queryable, func(c *Config) { c.Concurrency, c.Repeats = 1, 0 })
	errs := h.Handle(t.Context(), testkit.Batch(grants(2, 5)))
	require.True(t, hongbao.IsWaiting(errs[1]), "%v", errs[1])
	errs[1] = nil
	require.Equal(t, make([]error, 4), errs)
	err := h.Handle(t.Context(), testkit.Batch(grants(3, 3)))[0]
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%v", err)
	require.False(t, hongbao.IsWaiting(err) || hongbao.IsOutage(err), "%v", err)
	require.Equal(t, 1, b.asked("prod:rain:3"))
}
