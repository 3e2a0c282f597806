package store_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

const (
	historyWorkers = 4
	histories      = 600
)

// Random sequences of grabs run against grab.lua and against a model in Go. All answers and the final content of
// Redis agree.
func TestGrabAgainstModel(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for w := range historyWorkers {
		t.Run(strconv.Itoa(w), func(t *testing.T) {
			t.Parallel()
			seen := map[hongbao.Outcome]int{}
			limits := map[hongbao.Limit]int{}
			for i := w; i < histories; i += historyWorkers {
				h := newHistory(t, b, uint64(i))
				h.run(t)
				h.compare(t)
				for o, n := range h.seen {
					seen[o] += n
				}
				for l := range h.limits {
					limits[hongbao.Limit{By: l.By, Per: l.Per}]++
				}
			}
			for _, o := range hongbao.Outcomes() {
				if o != hongbao.OutcomeUnknownCampaign { // these tests only use known campaigns
					require.NotZero(t, seen[o], "no history came to %s: %v", o, seen)
				}
			}
			for _, by := range []string{"user", "device", "channel"} {
				for _, per := range []hongbao.Period{hongbao.PerCampaign, hongbao.PerDay, hongbao.PerHour} {
					require.NotZero(t, limits[hongbao.Limit{By: by, Per: per}], "no limit by %s per %s was hit", by, per)
				}
			}
		})
	}
}

type history struct {
	b      *bundle
	k      *store.Shard
	r      *rand.Rand
	m      *grabModel
	users  int
	terms  *store.LimitPeriods // terms after the latest call
	seen   map[hongbao.Outcome]int
	limits map[hongbao.Limit]bool
	name   string
}

// newHistory loads a random campaign into a deployment of its own, in half of the cases with grants on earlier days.
func newHistory(t *testing.T, b *bundle, seed uint64) *history {
	t.Helper()
	h := &history{
		b: b, r: rand.New(rand.NewPCG(seed, 1)), seen: map[hongbao.Outcome]int{}, limits: map[hongbao.Limit]bool{},
		name: fmt.Sprintf("history %d", seed),
	}
	h.b = setupOn(t, b.rdb)
	h.k = h.b.k
	c := h.spec()
	h.users = 1 + h.r.IntN(60)
	var err error
	h.m, err = newModel(c, h.b.load(t, c))
	require.NoError(t, err)
	if h.r.IntN(2) == 0 && !time.Now().Before(c.From) {
		h.past(t)
	}
	if h.r.IntN(2) == 0 { // the fields suffice: grab.lua does not access other places
		h.m.places = 3
		require.NoError(t, b.rdb.HSet(t.Context(), h.k.Keys.Campaign(c.ID), "places", h.m.places, "place", 0).Err())
	}
	return h
}

func (h *history) spec() hongbao.Campaign {
	r := h.r
	c := spec("rain", 1+r.Int64N(200))
	c.TimeZone = []string{"UTC", "Asia/Shanghai", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe",
		"Pacific/Apia"}[r.IntN(6)]
	now := time.Now().Truncate(time.Millisecond)
	c.From, c.To = now.Add(-time.Duration(r.IntN(10*24))*time.Hour-time.Minute), now.Add(24*time.Hour)
	switch r.IntN(12) {
	case 0: // not yet
		c.From = now.Add(time.Hour)
	case 1: // over
		c.To = now.Add(-time.Second)
		c.From = c.To.Add(-240 * time.Hour)
	case 2: // the window ends or, in case 3, begins during the history
		c.To = now.Add(time.Duration(20+r.IntN(30)) * time.Millisecond)
	case 3:
		c.From = now.Add(time.Duration(20+r.IntN(30)) * time.Millisecond)
	}
	c.Limits = []hongbao.Limit{{By: "user", Per: hongbao.PerCampaign, Max: []int64{1, 1, 2, 3, 10, 100}[r.IntN(6)]}}
	for _, by := range []string{"user", "channel", "device"} {
		for _, per := range []hongbao.Period{hongbao.PerDay, hongbao.PerCampaign, hongbao.PerHour} {
			if (by != "user" || per != hongbao.PerCampaign) && r.IntN(4) == 0 {
				most := int64(12)
				if by == "user" && r.IntN(4) > 0 {
					most = 2 // a low limit, so that users reach it
				}
				c.Limits = append(c.Limits, hongbao.Limit{By: by, Per: per, Max: 1 + r.Int64N(most)})
			}
		}
	}
	r.Shuffle(len(c.Limits), func(i, j int) { c.Limits[i], c.Limits[j] = c.Limits[j], c.Limits[i] })
	return c
}

// past runs grabs at times on earlier days in the model, and writes the model's state into Redis.
func (h *history) past(t *testing.T) {
	m, pipe := h.m, h.b.rdb.Pipeline()
	span := time.Since(m.spec.From) - 10*time.Second
	at := m.spec.From
	for n := h.r.IntN(40); n > 0 && span > 0; n-- {
		at = at.Add(time.Duration(h.r.Int64N(int64(span)/40 + 1))).Truncate(time.Millisecond)
		m.grab(h.grabs(1)[0], 1, nil, at)
	}
	id := m.spec.ID
	for user := range m.receipts {
		pipe.HSet(t.Context(), h.k.Keys.Receipts(id), user, m.stored(user))
	}
	for hash, counts := range m.counters {
		for field, n := range counts {
			pipe.HSet(t.Context(), h.k.Keys.Counters(id, hash), field, n)
		}
	}
	m.events = nil
	pipe.LTrim(t.Context(), h.k.Keys.Stock(id), m.granted, -1)
	m.finished = m.seq - h.r.Int64N(m.seq+1)
	pipe.HSet(t.Context(), h.k.Keys.Meta(), "seq", m.seq, "finished", m.finished)
	_, err := pipe.Exec(t.Context())
	require.NoError(t, err)
}

func (h *history) grabs(n int) []*hongbao.Grab {
	out := make([]*hongbao.Grab, n)
	for i := range out {
		g := &hongbao.Grab{Campaign: h.m.spec.ID, User: fmt.Sprintf("u%d", h.r.IntN(h.users))}
		switch h.r.IntN(4) {
		case 0: // none
		case 1: // the same ids for several users, and ids that look like other parts of a receipt
			g.RequestID = []string{"1:2:3:4:5", "r", ":r", "1", "r%d+", ".", "a:r", "=r", "4"}[h.r.IntN(9)]
		default:
			g.RequestID = fmt.Sprintf("r%d", h.r.IntN(200))
		}
		if h.r.IntN(3) == 0 {
			g.Trace = fmt.Sprintf("00-%x-01", h.r.Uint64())
		}
		for _, name := range h.m.factNames() {
			if g.Facts == nil {
				g.Facts = map[string]string{}
			}
			g.Facts[name] = fmt.Sprintf("%.1s%d", name, h.r.IntN(5))
		}
		out[i] = g
	}
	return out
}

func (h *history) run(t *testing.T) {
	var answers []hongbao.Answer
	for range 4 + h.r.IntN(12) {
		h.disturb(t)
		n := 1 + h.r.IntN(8)
		if h.r.IntN(3) == 0 {
			n = 1 + h.r.IntN(store.MaxGrabs)
		}
		c := &store.GrabCall{
			MaxBacklog: h.m.maxBacklog, FactNames: strings.Join(h.m.factNames(), ","), Grabs: h.grabs(n),
			Generation: h.m.newest - h.r.Int64N(h.m.newest+1)/2, TimesElsewhere: h.held(n),
		}
		if h.r.IntN(8) > 0 { // otherwise no terms, as in a producer's first call
			c.Terms = h.terms
		}
		var err error
		answers, err = h.k.Place(h.m.spec.ID).Grab(t.Context(), c, answers)
		require.NoError(t, err, h.name)
		h.terms = c.Terms
		require.Len(t, answers, n)
		now := answers[0].Time
		require.WithinDuration(t, time.Now(), now, time.Minute)
		for i, got := range answers {
			var held []time.Time
			if c.TimesElsewhere != nil {
				held = c.TimesElsewhere[i]
			}
			want := h.m.grab(c.Grabs[i], c.Generation, held, now)
			require.Equal(t, want, got, "%s: grab %d of %d: %+v", h.name, i, n, c.Grabs[i])
			h.seen[got.Outcome]++
			if got.Limit != nil {
				h.limits[hongbao.Limit{By: got.Limit.Limit.By, Per: got.Limit.Limit.Per}] = true
			}
		}
		h.conserved(t)
		if o := answers[n-1].Outcome; o == hongbao.OutcomeSoldOut || o == hongbao.OutcomeRefilling {
			require.Equal(t, []int64{int64(h.m.places), h.m.newest}, []int64{int64(c.Terms.Places()), c.Terms.Generation()},
				"%s: the call's terms are up to date", h.name)
		}
	}
}

// held returns random times of receipts on other places for each of n grabs; nil if there are no other places.
func (h *history) held(n int) [][]time.Time {
	if h.m.places == 1 || h.r.IntN(2) == 0 {
		return nil
	}
	out := make([][]time.Time, n)
	for i := range out {
		for range h.r.IntN(3) {
			back := time.Duration(h.r.Int64N(int64(72 * time.Hour)))
			if h.r.IntN(2) == 0 {
				back /= 100
			}
			if at := time.Now().Add(-back).Truncate(time.Millisecond); !at.Before(h.m.spec.From) {
				out[i] = append(out[i], at)
			}
		}
	}
	return out
}

// disturb makes a random change to the campaign or the shard that is not a grab.
func (h *history) disturb(t *testing.T) {
	ctx, m, shard := t.Context(), h.m, h.k
	switch h.r.IntN(16) {
	case 7, 8:
		h.announce(t)
	case 9, 10:
		h.deal(t)
	case 0:
		if m.state == store.StateOpen && !m.frozen {
			require.NoError(t, shard.Place(m.spec.ID).SetState(ctx, store.StatePaused, store.StateOpen))
			m.state = store.StatePaused
		}
	case 1, 2, 3:
		m.frozen = false
		require.NoError(t, h.b.rdb.HDel(ctx, h.k.Keys.Meta(), "frozen").Err())
		if m.state == store.StatePaused {
			require.NoError(t, shard.Place(m.spec.ID).SetState(ctx, store.StateOpen, store.StatePaused))
			m.state = store.StateOpen
		}
	case 4:
		m.maxBacklog = 1 + h.r.Int64N(60)
	case 5:
		m.maxBacklog = 1e6
		m.finished = m.seq
		require.NoError(t, h.b.rdb.HSet(ctx, h.k.Keys.Meta(), "finished", m.seq).Err())
	case 6:
		if h.r.IntN(3) == 0 {
			m.frozen = true
			require.NoError(t, h.b.rdb.HSet(ctx, h.k.Keys.Meta(), "frozen", "1").Err())
		}
	}
}

// announce announces the next generation and repeats the call, as a caller does after a lost answer.
func (h *history) announce(t *testing.T) {
	m := h.m
	if m.frozen || m.newest > m.dealt || m.newest == 4 {
		return
	}
	m.newest++
	a := &store.Announcement{Campaign: m.spec.ID, Hash: h.hash(t), Generation: m.newest, Plan: "plan",
		Share: m.loaded, ShareAmount: m.loadedSum}
	for range h.r.IntN(60) {
		amount := hongbao.Amount(1 + h.r.Int64N(20))
		m.coming = append(m.coming, amount)
		a.Share++
		a.ShareAmount += amount
	}
	a.Packets, a.Total = a.Share, a.ShareAmount
	for range 2 {
		require.NoError(t, h.k.Announce(t.Context(), a), h.name)
	}
}

// deal loads some or all remaining packets of the newest generation, and repeats each call.
func (h *history) deal(t *testing.T) {
	m := h.m
	if m.frozen || m.newest == m.dealt {
		return
	}
	n, step := len(m.coming), int64(m.places)
	if h.r.IntN(2) == 0 {
		n = h.r.IntN(n + 1)
	}
	c := &store.Chunk{Campaign: m.spec.ID, Hash: h.hash(t), Generation: m.newest, Before: m.loaded,
		First: m.numbered + step, Step: step, Amounts: m.coming[:n]}
	m.deal(n, step)
	for range 2 {
		at, err := h.k.LoadChunk(t.Context(), c)
		require.NoError(t, err, h.name)
		require.Equal(t, store.LoadState{State: m.state, Hash: c.Hash, Loaded: m.loaded, Dealt: m.dealt}, at, h.name)
	}
}

func (h *history) hash(t *testing.T) string {
	t.Helper()
	hash, err := h.b.rdb.HGet(t.Context(), h.k.Keys.Campaign(h.m.spec.ID), "hash").Result()
	require.NoError(t, err)
	return hash
}

// stock returns the packets that are left on the place, of all generations.
func (h *history) stock(t *testing.T) (all []string) {
	t.Helper()
	for g := range h.m.newest {
		stock, err := h.b.rdb.LRange(t.Context(), h.k.Keys.StockOf(h.m.spec.ID, g+1), 0, -1).Result()
		require.NoError(t, err)
		all = append(all, stock...)
	}
	return all
}

// conserved checks that funded = granted + left, in packets and in money.
func (h *history) conserved(t *testing.T) {
	stock := h.stock(t)
	f, err := h.k.Place(h.m.spec.ID).CampaignFields(t.Context())
	require.NoError(t, err)
	var left int64
	for _, s := range stock {
		_, amount, _ := strings.Cut(s, " ")
		left += number(t, amount)
	}
	require.Equal(t, int64(f.LoadedAmount-f.GrantedAmount), left, h.name)
	require.Equal(t, f.Loaded-f.Granted, int64(len(stock)), h.name)
	require.Equal(t, int64(h.m.loadedSum), int64(f.GrantedAmount)+left, h.name)
	require.Equal(t, h.m.loaded, f.Granted+int64(len(stock)), h.name)
}

func number(t testing.TB, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	require.NoError(t, err)
	return n
}

// compare compares the final content of Redis with the model.
func (h *history) compare(t *testing.T) {
	ctx, m, id := t.Context(), h.m, h.m.spec.ID
	var want []string
	for g := int64(1); g <= m.newest; g++ {
		for _, r := range m.stock[g] {
			want = append(want, fmt.Sprintf("%d %d", r.Packet, r.Amount))
		}
	}
	require.Equal(t, want, h.stock(t), h.name)

	receipts, err := h.b.rdb.HGetAll(ctx, h.k.Keys.Receipts(id)).Result()
	require.NoError(t, err)
	require.Len(t, receipts, len(m.receipts), h.name)
	for user, text := range receipts {
		require.Equal(t, m.stored(user), text, h.name)
	}
	hashes, err := h.b.rdb.Keys(ctx, h.k.Keys.Counters(id, "*")).Result()
	require.NoError(t, err)
	require.Len(t, hashes, len(m.counters), h.name)
	for hash, counts := range m.counters {
		counters, err := h.b.rdb.HGetAll(ctx, h.k.Keys.Counters(id, hash)).Result()
		require.NoError(t, err)
		require.Len(t, counters, len(counts), h.name)
		for field, n := range counts {
			require.Equal(t, n, number(t, counters[field]), "%s: %s %s", h.name, hash, field)
		}
	}
	f, err := h.k.Place(id).CampaignFields(ctx)
	require.NoError(t, err)
	require.Equal(t, []int64{m.granted, int64(m.amount)}, []int64{f.Granted, int64(f.GrantedAmount)},
		h.name)
	meta, err := h.b.rdb.HGetAll(ctx, h.k.Keys.Meta()).Result()
	require.NoError(t, err)
	require.Equal(t, m.seq, number(t, meta["seq"]), h.name)

	entries, err := h.k.Entries(ctx, "-", "+")
	require.NoError(t, err)
	var events []hongbao.Grant
	for _, e := range entries {
		require.NotEmpty(t, e.Grants)
		for _, g := range e.Grants {
			g.EntryID = ""
			events = append(events, g)
		}
	}
	require.Equal(t, m.events, events, h.name) // includes the seqs, which have no gaps in the model
}

func TestGrabRefusesBadCalls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 300))
	before := b.dump(t)
	many := make([]string, store.MaxGrabs+1)
	for i := range many {
		many[i] = fmt.Sprintf("u%d", i)
	}
	unbounded := call("rain", "u1")
	unbounded.MaxBacklog = -1
	for name, c := range map[string]*store.GrabCall{"none": call("rain"), "129": call("rain", many...), "bound": unbounded} {
		_, err := b.k.Place("rain").Grab(t.Context(), c, nil)
		require.Error(t, err, name)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err), name)
	}
	require.Empty(t, differ(before, b.dump(t)))
	b.grab(t, "rain", many[1:]...)
}

func TestGrabFacts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := spec("rain", 10)
	c.Limits = append(c.Limits, hongbao.Limit{By: "device", Per: hongbao.PerDay, Max: 1})
	b.load(t, c)
	before := b.dump(t)
	_, err := b.k.Place("rain").Grab(t.Context(), call("rain", "u1"), nil)
	var facts *store.FactsError
	require.ErrorAs(t, err, &facts)
	require.Equal(t, "device", facts.Names)
	require.Empty(t, differ(before, b.dump(t)), "nothing was decided")
}

func TestGrabUnknownAndLoading(t *testing.T) {
	t.Parallel()
	b := setup(t)
	answers, err := b.k.Place("rain").Grab(t.Context(), call("rain", "u1", "u2"), nil)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeUnknownCampaign, answers[1].Outcome)

	_, err = b.k.CreateCampaign(t.Context(),
		&store.CampaignCall{Campaign: "rain", Hash: "h", Fields: []string{
			"from", "1", "to", "9", "user_campaign", "1", "user_day", "", "user_hour", "", "fact_names", "", "fact_limits", "",
			"zone", "0:0",
			"packets", "1", "total", "1",
		}})
	require.NoError(t, err)
	answers, err = b.k.Place("rain").Grab(t.Context(), call("rain", "u1"), nil)
	require.NoError(t, err)
	require.Equal(t, hongbao.OutcomeNotStarted, answers[0].Outcome)
}

func FuzzParseReceipts(f *testing.F) {
	f.Add("3 500 7 1234 r1")
	f.Add("3 500 7 1234 \n4 5 6 7 a:b:c")
	f.Add("1 1 1 1 r\n")
	f.Add("+1 1 1 1 r")
	f.Fuzz(func(t *testing.T, text string) {
		const from = 1700000000000
		receipts, err := store.ParseReceipts(2, from, text)
		if err != nil {
			require.Nil(t, receipts)
			return
		}
		parts := []string{}
		for _, r := range receipts {
			require.Equal(t, 2, r.Shard)
			parts = append(parts, fmt.Sprintf("%d %d %d %d %s", r.Packet, r.Amount, r.Seq, r.Time.UnixMilli()-from, r.RequestID))
		}
		require.Equal(t, text, strings.Join(parts, "\n"), "each receipt has only one text form")
	})
}
