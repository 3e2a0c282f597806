package remote

import (
	"context"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

func TestEveryGrantOnce(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"idempotent": func(*Config) {}, "queryable": queryable, "neither": neither,
		"batches": func(c *Config) { c.BatchCredits = 7 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			b.notIdempotent = true // it has no idempotency: it would book every request
			h := newHandler(t, b, l, change)
			all := grants(1, 100)
			require.Nil(t, h.Handle(t.Context(), testkit.Batch(append(slices.Clone(all), all[3]))))
			require.Nil(t, h.Handle(t.Context(), testkit.Batch(all)), "a repeat is harmless")
			b.holds(t, all)
			require.Zero(t, l.left())
			require.LessOrEqual(t, b.times(), 1)
		})
	}
}

// wrongAnswers are inconclusive or wrong answers to a request for a credit that the bank has booked.
var wrongAnswers = map[string]func(b *bank, w http.ResponseWriter, r *http.Request, c credit){
	"no answer": func(_ *bank, w http.ResponseWriter, _ *http.Request, _ credit) { drop(w) },
	"500": func(_ *bank, w http.ResponseWriter, _ *http.Request, _ credit) {
		w.WriteHeader(http.StatusInternalServerError)
	},
	"502": func(_ *bank, w http.ResponseWriter, _ *http.Request, _ credit) { w.WriteHeader(http.StatusBadGateway) },
	"503": func(_ *bank, w http.ResponseWriter, _ *http.Request, _ credit) {
		w.WriteHeader(http.StatusServiceUnavailable)
	},
	"504": func(_ *bank, w http.ResponseWriter, _ *http.Request, _ credit) {
		w.WriteHeader(http.StatusGatewayTimeout)
	},
	"409":   func(_ *bank, w http.ResponseWriter, _ *http.Request, _ credit) { w.WriteHeader(http.StatusConflict) },
	"empty": func(_ *bank, w http.ResponseWriter, _ *http.Request, _ credit) { w.WriteHeader(http.StatusOK) },
	"HTML": func(_ *bank, w http.ResponseWriter, _ *http.Request, _ credit) {
		_, _ = w.Write([]byte("<html>fine</html>"))
	},
	"truncated": func(_ *bank, w http.ResponseWriter, _ *http.Request, c credit) { _, _ = w.Write(encode(c)[:20]) },
	"NaN": func(_ *bank, w http.ResponseWriter, _ *http.Request, _ credit) {
		_, _ = w.Write([]byte(`{"amount":NaN}`))
	},
	"twice the same name": func(_ *bank, w http.ResponseWriter, _ *http.Request, c credit) {
		_, _ = w.Write([]byte(strings.Replace(string(encode(c)), "{", `{"amount":1,`, 1)))
	},
	"endless": func(_ *bank, w http.ResponseWriter, _ *http.Request, _ credit) { _, _ = w.Write(make([]byte, 1<<20)) },
	"compressed": func(b *bank, w http.ResponseWriter, _ *http.Request, c credit) {
		w.Header().Set("Content-Encoding", "gzip")
		b.say(w, 200, c)
	},
	"other id": func(b *bank, w http.ResponseWriter, _ *http.Request, c credit) {
		c.Reference = "other"
		b.say(w, 200, c)
	},
	"other amount":  func(b *bank, w http.ResponseWriter, _ *http.Request, c credit) { c.Amount++; b.say(w, 200, c) },
	"other account": func(b *bank, w http.ResponseWriter, _ *http.Request, c credit) { c.Account = "x"; b.say(w, 200, c) },
	"too late": func(_ *bank, w http.ResponseWriter, r *http.Request, _ credit) {
		<-r.Context().Done() // until the client has given up
		w.WriteHeader(http.StatusCreated)
	},
	"redirect": func(b *bank, w http.ResponseWriter, _ *http.Request, _ credit) {
		w.Header().Set("Location", b.URL+"/inside")
		w.WriteHeader(http.StatusTemporaryRedirect)
	},
}

// The remote books a credit, but its answer is wrong or missing. After the retry with the same key, or the query, there
// is exactly one credit.
func TestAppliedAndAnsweredWrong(t *testing.T) {
	t.Parallel()
	for name, answer := range wrongAnswers {
		for able, change := range map[string]func(*Config){"both": func(*Config) {}, "idempotent": repeats,
			"queryable": queryable} {
			t.Run(name+", "+able, func(t *testing.T) {
				t.Parallel()
				b, l := newBank(t), newBooks()
				b.notIdempotent = able == "queryable"
				b.set(func(w http.ResponseWriter, r *http.Request, c credit) {
					c = b.book(c)
					if b.asked(c.Reference) == 1 {
						answer(b, w, r, c)
						return
					}
					b.say(w, 200, c)
				})
				h := newHandler(t, b, l, change, patience(name))
				require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 3))))
				b.holds(t, grants(1, 3))
				require.Zero(t, l.left())
				require.GreaterOrEqual(t, b.all()+int(b.queries.Load()), 6, "no wrong answer was trusted")
			})
		}
		t.Run(name+", neither", func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			b.notIdempotent = true
			b.set(func(w http.ResponseWriter, r *http.Request, c credit) { answer(b, w, r, b.book(c)) })
			h := newHandler(t, b, l, neither, patience(name))
			for range 3 { // requeuing does not help
				errs := h.Handle(t.Context(), testkit.Batch(grants(1, 2)))
				require.Len(t, errs, 2)
				for _, err := range errs {
					require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err), "%v", err)
					require.ErrorContains(t, err, "never sent twice")
					require.NotErrorIs(t, err, ErrContradiction, "the credit is only in doubt")
				}
			}
			b.holds(t, grants(1, 2))
			require.Equal(t, 1, b.times())
			require.Equal(t, 2, l.left(), "the rows stay for the person who decides")
		})
	}
}

func patience(name string) func(*Config) {
	if name == "too late" {
		return impatient
	}
	return func(*Config) {}
}

// A remote without idempotency books the credit long after the request has timed out.
func TestAppliedLongAfter(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	b.notIdempotent = true
	held := make(chan credit, 1)
	b.set(func(w http.ResponseWriter, _ *http.Request, c credit) { held <- c; drop(w) })
	h := newHandler(t, b, l, queryable, func(c *Config) { c.QueryFinal = time.Minute })
	errs := h.Handle(t.Context(), testkit.Batch(grants(1, 1)))
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(errs[0]))
	l.ages(50 * time.Second)
	errs = h.Handle(t.Context(), testkit.Batch(grants(1, 1)))
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(errs[0]), "the request can still take effect")
	b.book(<-held)
	require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(1, 1))))
	b.holds(t, grants(1, 1))
	require.Equal(t, 1, b.times(), "it was sent once")
	require.Zero(t, l.left())

	errs = h.Handle(t.Context(), testkit.Batch(grants(2, 2))) // this request is never booked
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(errs[0]))
	<-held
	b.set(nil)
	l.ages(testClaimTime + 61*time.Second)
	require.Nil(t, h.Handle(t.Context(), testkit.Batch(grants(2, 2))), "QueryFinal is over, so it is sent again")
	b.holds(t, grants(1, 2))
}

// The remote has forgotten the keys of credits in doubt. The credits are not sent again: a query finds them, or a
// person decides.
func TestPastTheRetention(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){"alone": repeats, "queryable": func(*Config) {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			b.set(func(w http.ResponseWriter, _ *http.Request, c credit) {
				b.book(c)
				w.WriteHeader(http.StatusInternalServerError)
			})
			h := newHandler(t, b, l, change, func(c *Config) { c.Repeats = 0 })
			errs := h.Handle(t.Context(), testkit.Batch(grants(1, 2)))
			require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(errs[0]))
			b.mu.Lock()
			b.notIdempotent, b.answer = true, nil
			sent := b.posts["prod:rain:1"]
			b.mu.Unlock()
			require.Equal(t, 2, l.ages(24*time.Hour-time.Minute))
			errs = h.Handle(t.Context(), testkit.Batch(grants(1, 2)))
			if name == "queryable" {
				require.Nil(t, errs)
			} else {
				require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]))
				require.ErrorContains(t, errs[0], "could pay twice")
				require.Equal(t, 2, l.left())
			}
			b.holds(t, grants(1, 2))
			require.Equal(t, sent, b.times())
		})
	}
}

// The first worker dies after it has sent the request. A second worker takes the grant over after ClaimTime, and
// resolves it with the time of the first request.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){"idempotent": repeats, "queryable": queryable, "neither": neither} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			b.notIdempotent = name != "idempotent"
			ctx, kill := context.WithCancel(t.Context())
			b.set(func(w http.ResponseWriter, _ *http.Request, c credit) {
				b.book(c)
				kill()
				drop(w)
			})
			w1 := newHandler(t, b, l, change)
			errs := w1.Handle(ctx, testkit.Batch(grants(1, 1)))
			require.NotNil(t, errs)
			b.set(nil)
			w2 := newHandler(t, b, l, change)
			errs = w2.Handle(t.Context(), testkit.Batch(grants(1, 1)))
			require.True(t, hongbao.IsWaiting(errs[0]), "the first worker may still be alive: %v", errs[0])
			l.died()
			errs = w2.Handle(t.Context(), testkit.Batch(grants(1, 4)))
			if name == "neither" {
				require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]))
				require.Equal(t, []error{nil, nil, nil}, errs[1:], "the other grants are not delayed")
			} else {
				require.Nil(t, errs)
				require.Zero(t, l.left())
			}
			b.holds(t, grants(1, 4))
		})
	}
}

// Some grants of a batch stay unknown or are rejected. The other grants are done.
func TestHalfOfABatch(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	sick := func(w http.ResponseWriter, _ *http.Request, c credit) {
		switch c.Reference {
		case "prod:rain:3":
			w.WriteHeader(http.StatusInternalServerError)
		case "prod:rain:5":
			b.say(w, 422, map[string]string{"code": "account_closed"})
		default:
			b.say(w, 200, b.book(c))
		}
	}
	b.set(sick)
	h := newHandler(t, b, l)
	all := grants(1, 6)
	errs := h.Handle(t.Context(), testkit.Batch(all))
	for i, want := range []error{nil, nil, errStatus, nil, errStatus, nil} {
		require.ErrorIs(t, errs[i], want)
	}
	require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(errs[2]))
	require.False(t, hongbao.IsOutage(errs[2]), "a failure of one credit is no outage")
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(errs[4]))
	require.Equal(t, 1, l.left())
	require.Contains(t, l.rows, "prod:rain:3", "only the unknown credit is still pending")
	b.set(nil)
	require.Nil(t, h.Handle(t.Context(), testkit.Batch(all[2:3])))
	require.Zero(t, l.left())
	b.holds(t, append(slices.Clone(all[:4]), all[5]))
}

func TestMisfits(t *testing.T) {
	t.Parallel()
	b, l := newBank(t), newBooks()
	h := newHandler(t, b, l)
	list := grants(1, 7)
	list[1].Amount++
	list[2].Campaign = "snow"
	list[3].User = "a b"
	list[4].Packet, list[4].Amount = 900, 0
	list[5].Seq = 1
	list[6].Campaign = "down"
	list = append(list, grants(8, 8)...)
	errs := h.Handle(t.Context(), testkit.Batch(list))
	require.NoError(t, errs[0])
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[1]))
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[2]))
	require.ErrorIs(t, errs[1], ErrContradiction)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(errs[3]))
	require.NoError(t, errs[4], "nothing to credit")
	require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[5]), "two grants under one seq")
	require.True(t, hongbao.IsOutage(errs[6]))
	require.Equal(t, errs[6], errs[7], "the plan is not queried again in this call")
	b.holds(t, list[:1])
}

// The remote has a different credit under our reference, because Redis went back in time or someone forged grants. The
// result is a Conflict.
func TestSomethingElseIsThere(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){"both": func(*Config) {}, "idempotent": repeats,
		"batch": func(c *Config) { c.BatchCredits = 5 }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			other := credit{Reference: "prod:rain:1", Account: "thief", Currency: "CNY", Amount: 101}
			b.book(other)
			h := newHandler(t, b, l, change)
			errs := h.Handle(t.Context(), testkit.Batch(grants(1, 2)))
			require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]), "%v", errs[0])
			require.ErrorIs(t, errs[0], ErrContradiction)
			require.NoError(t, errs[1])
			b.set(func(w http.ResponseWriter, _ *http.Request, _ credit) {
				b.say(w, 422, map[string]string{"code": codeKeyReused})
			})
			errs = h.Handle(t.Context(), testkit.Batch(grants(1, 1)))
			require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(errs[0]), "%v", errs[0])
		})
	}
}

// The remote can't be reached. So nothing was sent, and no credit is in doubt or pending.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	fake := newBooks()
	tlsBank := newBank(t)
	for name, url := range map[string]string{
		"refused": "http://" + l.Addr().String(), "no such name": "http://nobody.invalid",
		"not TLS": strings.Replace(tlsBank.URL, "http:", "https:", 1),
	} {
		cfg := testConfig(url)
		h, err := New(cfg, campaigns{}, fake)
		require.NoError(t, err)
		errs := h.Handle(t.Context(), testkit.Batch(grants(1, 3)))
		for _, err := range errs {
			require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err), "%s: %v", name, err)
			require.True(t, hongbao.IsOutage(err))
		}
		require.Zero(t, fake.left(), name)
		h.Close()
	}
}

func TestConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := New(Config{URL: "ftp://u:pw@x", Token: "a\nb", Deployment: "a:b", QueryFinal: 1, BatchCredits: 5000,
		Repeats: -1}, nil, nil)
	for _, part := range []string{"URL", "token", "deployment", "ConnectTimeout", "HeaderTimeout", "ClaimTime", "Pause",
		"BodyBytes",
		"Concurrency", "BatchCredits", "Repeats", "BreakerFailures", "QueryFinal", "campaigns and ledger"} {
		require.ErrorContains(t, err, part)
	}
	require.NotContains(t, err.Error(), "pw")
	cfg := testConfig("http://x")
	cfg.Margin = cfg.ClaimTime
	require.ErrorContains(t, cfg.Check(), "Margin")
	cfg = testConfig("http://x")
	require.NoError(t, cfg.Check())
	for _, outcome := range []CreditOutcome{Done, Rejected} { // not allowed for a queryable remote
		cfg.Verified = outcome
		require.ErrorContains(t, cfg.Check(), "Verified")
	}
	cfg.Verified = NotSent
	require.ErrorContains(t, cfg.Check(), "VerifiedAt")
	cfg.VerifiedAt = time.Now()
	require.NoError(t, cfg.Check())
	cfg.Replay = true
	require.ErrorContains(t, cfg.Check(), "Verified")
}
