package remote

import (
	"github.com/hongbao-project/hongbao/internal/testkit"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// answersThen makes the bank book each credit at its first request, which first answers. The bank rejects every later
// request for the credit.
func (b *bank) answersThen(first func(w http.ResponseWriter)) {
	b.set(func(w http.ResponseWriter, _ *http.Request, c credit) {
		if b.asked(c.Reference) == 1 {
			b.book(c)
			first(w)
			return
		}
		b.say(w, http.StatusUnprocessableEntity, map[string]string{"code": "account_closed"})
	})
}

// The remote books a credit, but its answer is lost or inconclusive. Then it rejects the retry. The rejection must not
// count as the result of the first request.
func TestRepeatIsRejected(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(w http.ResponseWriter){
		"no answer": drop,
		"500":       func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"accepted":  func(w http.ResponseWriter) { w.WriteHeader(http.StatusAccepted) },
	} {
		t.Run(name+", it can be asked", func(t *testing.T) {
			t.Parallel()
			for _, tries := range []int{0, 2} {
				b, l := newBank(t), newBooks()
				b.answersThen(first)
				h := newHandler(t, b, l, func(c *Config) { c.Repeats = tries })
				require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 3))))
				b.holds(t, grants(1, 3))
				l.has(t, grants(1, 3))
				require.Zero(t, l.left())
				require.Equal(t, 2, b.times())
			}
		})
		t.Run(name+", it can't be asked", func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			b.answersThen(first)
			h := newHandler(t, b, l, repeats)
			for range 2 { // requeuing does not help
				for _, err := range h.Handle(t.Context(), testkit.Batch(grants(1, 3))) {
					require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "%v", err)
					require.ErrorIs(t, err, errStatus, "the error has the remote's status")
				}
				require.Equal(t, 3, l.left(), "the rows stay for the person who decides")
			}
			l.died()
			require.Nil(t, newHandler(t, b, l, repeats, verified(Done)).Handle(t.Context(), testkit.Batch(grants(1, 3))))
			l.has(t, grants(1, 3))
		})
	}
}

// A worker dies after the remote has booked the credit. The next worker's request is rejected. It queries the credit,
// or a person decides.
func TestRejectedAfterTakingOver(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){"both": func(*Config) {}, "idempotent": repeats} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			b.answersThen(drop)
			b.failsQueries.Store(true)
			errs := newHandler(t, b, l, queryable, func(c *Config) { c.Repeats = 0 }).Handle(t.Context(), testkit.Batch(grants(1, 1)))
			require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(errs[0]))
			b.failsQueries.Store(false)
			l.died()
			errs = newHandler(t, b, l, change).Handle(t.Context(), testkit.Batch(grants(1, 1)))
			if name == "both" {
				require.Nil(t, errs)
				l.has(t, grants(1, 1))
				return
			}
			require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]), "%v", errs[0])
			require.Equal(t, 1, l.left())
		})
	}
}

// A retry is rejected, and the remote does not have the credit. The rejection is final only when no earlier request
// can still arrive, or when a person has verified it.
func TestRejectedAndNotThere(t *testing.T) {
	t.Parallel()
	never := func(b *bank) {
		b.set(func(w http.ResponseWriter, _ *http.Request, c credit) {
			if b.asked(c.Reference) == 1 {
				drop(w)
				return
			}
			b.say(w, http.StatusUnprocessableEntity, map[string]string{"code": "account_closed"})
		})
	}
	t.Run("later", func(t *testing.T) {
		t.Parallel()
		b, l := newBank(t), newBooks()
		never(b)
		h := newHandler(t, b, l, func(c *Config) { c.QueryFinal = time.Minute })
		errs := h.Handle(t.Context(), testkit.Batch(grants(1, 1)))
		require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(errs[0]), "the first request may still arrive: %v", errs[0])
		require.Equal(t, 1, l.left())
		// Just before the end of the retention: later, the credit would be queried and sent again.
		l.ages(24*time.Hour - 2*time.Minute)
		errs = h.Handle(t.Context(), testkit.Batch(grants(1, 1)))
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(errs[0]), "%v", errs[0])
		require.Zero(t, l.left())
		require.Equal(t, 3, b.times(), "it is not sent again")
	})
	t.Run("a person", func(t *testing.T) {
		t.Parallel()
		for _, change := range []func(*Config){func(*Config) {}, repeats} {
			b, l := newBank(t), newBooks()
			never(b)
			require.NotNil(t, newHandler(t, b, l, change).Handle(t.Context(), testkit.Batch(grants(1, 1))))
			l.died()
			l.ages(time.Hour)
			errs := newHandler(t, b, l, change, verified(NotSent)).Handle(t.Context(), testkit.Batch(grants(1, 1)))
			require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(errs[0]), "%v", errs[0])
			require.Zero(t, l.left())
		}
	})
}

// A remote books the first credit of a batch and refuses the batch. Then it rejects that credit when it is requested
// alone. The rejection must not count as final.
func TestRejectedAfterARefusedBatch(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){"both": func(*Config) {}, "idempotent": repeats} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			b.set(func(w http.ResponseWriter, r *http.Request, c credit) {
				switch {
				case r.URL.Path == "/v1/credits:batch":
					b.book(c) // books only the first credit
					w.WriteHeader(http.StatusForbidden)
				case c.Reference == "prod:rain:1":
					b.say(w, http.StatusUnprocessableEntity, map[string]string{"code": "account_closed"})
				default:
					b.say(w, http.StatusCreated, b.book(c))
				}
			})
			h := newHandler(t, b, l, change, func(c *Config) { c.BatchCredits = 5 })
			errs := h.Handle(t.Context(), testkit.Batch(grants(1, 3)))
			b.holds(t, grants(1, 3))
			if name == "both" {
				require.Nil(t, errs)
				l.has(t, grants(1, 3))
				return
			}
			require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]), "%v", errs[0])
			require.Equal(t, []error{nil, nil}, errs[1:])
			require.Equal(t, 1, l.left())
		})
	}
}

// A remote books the first credit of a batch and refuses the batch. The worker can't request that credit alone yet;
// later the remote rejects it. The pending row stays, because the batch has booked the credit.
func TestRefusedBatchThenNotSent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){"both": func(*Config) {}, "idempotent": repeats} {
		for why, silent := range map[string]bool{"nothing is sent": true, "each is refused": false} {
			t.Run(name+", "+why, func(t *testing.T) {
				t.Parallel()
				b, l := newBank(t), newBooks()
				h := newHandler(t, b, l, change, func(c *Config) { c.BatchCredits = 5 })
				b.set(func(w http.ResponseWriter, r *http.Request, c credit) {
					if r.URL.Path == "/v1/credits:batch" {
						b.book(c) // books only the first credit
						if silent {
							h.gate.Silence(time.Hour)
						}
					}
					w.WriteHeader(http.StatusForbidden)
				})
				for _, err := range h.Handle(t.Context(), testkit.Batch(grants(1, 3))) {
					require.True(t, hongbao.IsOutage(err) || hongbao.IsWaiting(err), "%v", err)
				}
				require.Equal(t, 3, l.left(), "the batch may have booked each")
				require.LessOrEqual(t, b.times(), 1)
				h.gate = h.newGate()
				b.set(func(w http.ResponseWriter, _ *http.Request, c credit) {
					if c.Reference == "prod:rain:1" {
						b.say(w, http.StatusUnprocessableEntity, map[string]string{"code": "account_closed"})
						return
					}
					b.say(w, http.StatusCreated, b.book(c))
				})
				errs := h.Handle(t.Context(), testkit.Batch(grants(1, 3)))
				b.holds(t, grants(1, 3))
				if name == "both" {
					require.Nil(t, errs)
					l.has(t, grants(1, 3))
					require.Zero(t, l.left())
					return
				}
				require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]), "%v", errs[0])
				require.Equal(t, []error{nil, nil}, errs[1:])
				require.Equal(t, 1, l.left())
			})
		}
	}
}

// The ledger has lost a credit that the remote has booked, and the remote rejects the replay. A query finds the
// credit, or a person decides.
func TestReplayIsRejected(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){"both": func(*Config) {}, "idempotent": repeats} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			all := grants(1, 1)
			all[0].Time = time.Now().Add(-time.Minute)
			require.Nil(t, newHandler(t, b, l).Handle(t.Context(), testkit.Batch(all)))
			b.answersThen(drop)
			l = newBooks()
			errs := newHandler(t, b, l, change, func(c *Config) { c.Replay = true }).Handle(t.Context(), testkit.Batch(all))
			if name == "both" {
				require.Nil(t, errs)
				l.has(t, all)
				return
			}
			require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]), "%v", errs[0])
			require.Equal(t, 1, l.left())
		})
	}
}

// A rejected query says nothing about the credit, which stays in doubt.
func TestQuestionIsRejected(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 402, 410, 422} {
		b, l := newBank(t), newBooks()
		b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { b.book(c); drop(w) })
		good := b.Config.Handler
		b.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				b.say(w, status, map[string]string{"code": "credit_refused"})
				return
			}
			good.ServeHTTP(w, r)
		})
		h := newHandler(t, b, l, queryable, func(c *Config) { c.QueryFinal = time.Minute })
		for range 2 {
			err := h.Handle(t.Context(), testkit.Batch(grants(1, 1)))[0]
			require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%v", err)
			require.Equal(t, 1, l.left())
			l.ages(time.Hour)
		}
		require.Equal(t, 1, b.times())
	}
}

// The remote refuses the credentials of the worker, or its proxy refuses all requests, for longer than the remote
// remembers keys. These statuses come before the remote reads a batch, so nothing is booked: the grants wait, and are
// sent when the remote is back. No person has to decide.
func TestEveryRequestIsRefusedForLong(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 404, 405, 411, 413, 414, 415, 421, 431} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			h := newHandler(t, b, l, repeats, func(c *Config) { c.BatchCredits = 5 })
			b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) { w.WriteHeader(status) })
			for range 2 {
				for _, err := range h.Handle(t.Context(), testkit.Batch(grants(1, 3))) {
					require.True(t, hongbao.IsOutage(err) || hongbao.IsWaiting(err), "%v", err)
				}
				require.Zero(t, l.left())
				h.gate = h.newGate()
				l.ages(72 * time.Hour)
			}
			b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { b.say(w, http.StatusCreated, b.book(c)) })
			h.cfg.BatchCredits = 0
			require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 3))))
			b.holds(t, grants(1, 3))
			l.has(t, grants(1, 3))
		})
	}
}
