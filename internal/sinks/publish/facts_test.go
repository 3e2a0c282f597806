package publish

import (
	"context"
	"errors"
	"fmt"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/topic"
)

// memCampaigns has the codes of campaign spring in memory, except those of the packets in without.
type memCampaigns struct {
	mu      sync.Mutex
	fails   string // the method that returns an error: terms or codes
	without []int64
	asked   int // number of calls of Codes
}

func (m *memCampaigns) Terms(_ context.Context, _ int, campaign string) (cloudevent.Facts, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails == "terms" {
		return cloudevent.Facts{}, false, errors.New("redis is gone")
	}
	if campaign == "spring" {
		return cloudevent.Facts{Currency: "CNY", Codes: true}, true, nil
	}
	return cloudevent.Facts{Currency: "EUR"}, campaign == "autumn", nil
}

func (m *memCampaigns) Codes(_ context.Context, _ int, campaign string, packets []int64) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if m.fails == "codes" || campaign != "spring" {
		return nil, errors.New("redis is gone")
	}
	codes := make([]string, len(packets))
	for i, p := range packets {
		if !slices.Contains(m.without, p) {
			codes[i] = codeOf(p)
		}
	}
	return codes, nil
}

func codeOf(packet int64) string { return fmt.Sprintf(`C"%d\`, packet) }

// published returns the grants in the topic by event id.
func published(t *testing.T, p *Publisher) map[string]hongbao.Grant {
	t.Helper()
	var mu sync.Mutex
	out := map[string]hongbao.Grant{}
	r, err := p.Scan(t.Context(), nil, func(_ Position, e topic.Event) error {
		mu.Lock()
		defer mu.Unlock()
		out[e.Grant.EventID()] = e.Grant
		return nil
	})
	require.NoError(t, err)
	require.Zero(t, r.Malformed)
	return out
}

func TestTermsArePublished(t *testing.T) {
	t.Parallel()
	b := setup(t)
	codes := &memCampaigns{}
	b.cfg.Campaigns = codes
	p, _ := b.worker(t)
	g := b.store.grants(0, 250, decided)
	for i := range g {
		if i%3 == 0 {
			g[i].Campaign = "autumn" // a campaign without codes
		}
	}
	g[1].Code = "from-the-ledger"
	before := slices.Clone(g)
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
	require.Equal(t, before, g, "the caller's grants are unchanged")
	require.Equal(t, 1, codes.asked, "once for a batch")
	requireOneCopy(t, &b.cfg, g)
	for id, e := range published(t, p) {
		want, currency := codeOf(e.Packet), "CNY"
		if e.Campaign == "autumn" {
			want, currency = "", "EUR"
		}
		require.Equal(t, currency, e.Currency, id)
		if id == g[1].EventID() {
			want = "from-the-ledger"
		}
		require.Equal(t, want, e.Code, id)
	}
	plain := b.store.grants(1, 20, decided)
	for i := range plain {
		plain[i].Campaign = "autumn"
	}
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(plain)))
	require.Equal(t, 1, codes.asked)
}

// If terms or codes can't be read, all grants get an outage and nothing is claimed or sent. A later call succeeds.
func TestTermsOutOfReach(t *testing.T) {
	t.Parallel()
	for _, fails := range []string{"terms", "codes"} {
		t.Run(fails, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			codes := &memCampaigns{fails: fails}
			b.cfg.Campaigns = codes
			p, w := b.worker(t)
			w.fate = func() fate { return pass }
			g := b.store.grants(0, 20, decided)
			requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 20, hongbao.ClassTransient, true)
			require.Zero(t, b.store.open(0))
			require.Zero(t, w.sends)
			codes.fails = ""
			require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
			requireOneCopy(t, &b.cfg, g)
		})
	}
}

// If a coupon certainly has no code, it gets a Permanent error and is not sent. The other grants are sent.
func TestCouponWithoutItsCode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g := b.store.grants(0, 20, decided)
	codes := &memCampaigns{without: []int64{g[7].Packet}}
	b.cfg.Campaigns = codes
	p, _ := b.worker(t)
	errs := p.Handle(t.Context(), testkit.Batch(g))
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(errs[7]))
	require.ErrorContains(t, errs[7], "has no code")
	for i, err := range errs {
		require.Equal(t, i == 7, err != nil)
	}
	require.Len(t, published(t, p), 19)
	codes.without = nil
	require.Nil(t, p.Handle(t.Context(), testkit.Batch(g[7:8])))
	require.Equal(t, codeOf(g[7].Packet), published(t, p)[g[7].EventID()].Code)
	requireOneCopy(t, &b.cfg, g)
}

// A grant of an unknown campaign gets a Permanent error and is not sent. The other grants are sent.
func TestCampaignThatNobodyKnows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Campaigns = &memCampaigns{}
	p, _ := b.worker(t)
	g := b.store.grants(0, 20, decided)
	g[7].Campaign = "winter"
	errs := p.Handle(t.Context(), testkit.Batch(g))
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(errs[7]))
	require.ErrorContains(t, errs[7], "the currency of packet")
	for i, err := range errs {
		require.Equal(t, i == 7, err != nil)
	}
	require.Len(t, published(t, p), 19)
}

// A stored batch is rebuilt with its codes, so the broker recognizes the copy. If a code is missing by then, the worker
// reads the log instead.
func TestStoredBatchWithCodes(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"still there": false, "gone": true} {
		for how, f := range map[string]fate{"appended": swallow, "never sent": lost} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				codes := &memCampaigns{}
				b.cfg.Campaigns = codes
				owner, w := b.worker(t)
				g := b.store.grants(0, 20, decided)
				w.fate = func() fate { return f }
				requireClass(t, owner.Handle(t.Context(), testkit.Batch(g)), 20, hongbao.ClassUnknown, true)
				require.Positive(t, w.fired)
				if gone {
					codes.without = []int64{g[3].Packet}
				}
				other, _ := b.worker(t)
				rest := g
				if gone {
					rest = g[4:] // leave out the grant without a code: it would fail before the claim
				}
				require.Nil(t, other.Handle(t.Context(), testkit.Batch(rest)))
				require.Zero(t, b.store.open(0))
				s := other.Stats()
				switch {
				case gone && f == swallow:
					require.EqualValues(t, 1, s.FoundInLog)
				case gone:
					require.EqualValues(t, 1, s.LetGo)
				default:
					require.EqualValues(t, 1, s.SentAgain)
				}
				codes.without = nil
				require.Nil(t, other.Handle(t.Context(), testkit.Batch(g)))
				requireOneCopy(t, &b.cfg, g)
				for id, e := range published(t, other) {
					require.Equal(t, codeOf(e.Packet), e.Code, id)
					require.Equal(t, "CNY", e.Currency, id)
				}
			})
		}
	}
}
