package console

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// rainAt is when the window of the tests opens.
var rainAt = time.Date(2027, 2, 6, 12, 0, 0, 0, time.UTC)

// healthy returns the facts of a campaign that rains, and whose winners are all paid.
func healthy() *facts {
	live := &model.Live{Campaign: model.Campaign{ID: "rain", Currency: "CNY", TimeZone: "Asia/Shanghai", Status: "open", From: rainAt,
		To: rainAt.Add(10 * time.Minute), Packets: 50_000, Dealt: 50_000, Granted: 35_148, Left: 14_852, InRedis: true}, Settled: 35_148,
		Lags: []model.Lag{{Sink: configs.SinkBalance}, {Sink: configs.SinkKafka}}}
	at := rainAt.Add(23 * time.Second)
	return &facts{Live: live, now: at, read: at, every: time.Second, differs: -1, sinks: []deliveries.SinkStatus{
		{Sink: configs.SinkBalance, State: deliveries.SinkWorking}, {Sink: configs.SinkKafka, State: deliveries.SinkWorking}}}
}

// sinkIs gives a sink a state, and grants that wait for it.
func sinkIs(sink string, state deliveries.SinkState, waits int64, oldest float64) func(*facts) {
	return func(f *facts) {
		for i := range f.sinks {
			if f.sinks[i].Sink == sink {
				f.sinks[i].State, f.Lags[i].Grants, f.Lags[i].Oldest = state, waits, time.Duration(oldest*float64(time.Second))
			}
		}
		if sink == configs.SinkBalance {
			f.Settled = f.Granted - waits
		}
	}
}

func stateIs(state string) func(*facts) { return func(f *facts) { f.Status = state } }

// states of a campaign, and what its page says of each.
var judgements = map[string]struct {
	change func(*facts)
	code   string
	level  level
	say    string
	next   string
}{
	"raining":      {func(*facts) {}, "raining", levelOK, "All 35,148 winners are paid, and nothing waits for another sink.", "Nothing to do"},
	"on the way":   {sinkIs(configs.SinkBalance, deliveries.SinkWorking, 251, 0.4), "raining", levelOK, "Winners are paid and announced within a second.", "Nothing to do"},
	"slow":         {sinkIs(configs.SinkBalance, deliveries.SinkWorking, 251, 7), "raining", levelInfo, "What is on the way takes longer than a second: the oldest 7 s.", "Nothing to do"},
	"no winner":    {func(f *facts) { f.Granted, f.Settled = 0, 0 }, "raining", levelOK, "Users can grab. Nobody has won yet.", "Nothing to do"},
	"before":       {stateIs("created"), "before", levelWait, "Not loaded yet: without a load nobody can grab at 20:00:00.", "Load the campaign"},
	"half loaded":  {stateIs("loading"), "before", levelWait, "The load has begun and is not finished: nobody can grab yet.", "Load the campaign"},
	"ready":        {stateIs("not_started"), "ready", levelOK, "50,000 packets are loaded.", "Publish the plan hash"},
	"ready, idle":  {func(f *facts) { f.Status, f.sinks[0].State = "not_started", deliveries.SinkNoWorker }, "ready", levelWait, "50,000 packets are loaded.", "Publish the plan hash"},
	"ready, alone": {func(f *facts) { f.Status, f.sinks = "not_started", nil }, "ready", levelCalm, "50,000 packets are loaded.", "Publish the plan hash"},
	"paused": {func(f *facts) {
		f.Status, f.Paused = "paused", &model.Pause{By: "key:wei", Why: "wrong users", At: rainAt}
	}, "paused", levelWait,
		"Paused by key:wei at 20:00:00: “wrong users”. Nobody wins, and users get “paused”.", "Resume"},
	"frozen": {stateIs("frozen"), "frozen", levelWait, "Frozen: users get “try again”, and nobody is told “not won”.", "Wait, up to a minute"},
	"sold out": {func(f *facts) { f.Status, f.Granted, f.Settled, f.Left = "sold_out", 50_000, 50_000, 0 }, "sold_out", levelOK,
		"All 50,000 winners are paid, and nothing waits for another sink.", "Close the campaign"},
	"window over": {stateIs("ended"), "window_over", levelWait,
		"The window is over with 14,852 packets left. Their money stays reserved until the refund.", "Close the campaign"},
	"no worker": {sinkIs(configs.SinkBalance, deliveries.SinkNoWorker, 8_342, 6), "no_worker", levelBad,
		"No worker runs: 8,342 winners wait for their money.", "Start a worker"},
	"balance behind": {sinkIs(configs.SinkBalance, deliveries.SinkBehind, 8_310, 41), "sink_behind", levelWait,
		"Payments: 8,310 grants behind, the oldest 41 s.", "Look at the deliveries"},
	"kafka down": {sinkIs(configs.SinkKafka, deliveries.SinkDown, 1_520, 39), "sink_down", levelWait,
		"Announcements to Kafka: down. 1,520 grants wait, the oldest 39 s.", "Look at the deliveries"},
	"kafka paused": {sinkIs(configs.SinkKafka, deliveries.SinkPaused, 2, 1), "sink_paused", levelWait,
		"Announcements to Kafka: paused. 2 grants wait.", "Look at the deliveries"},
	"kafka alone": {sinkIs(configs.SinkKafka, deliveries.SinkNoWorker, 9, 3), "sink_no_worker", levelWait,
		"Announcements to Kafka: no worker runs. 9 grants wait, the oldest 3 s.", "Look at the deliveries"},
	"redis down": {func(f *facts) { f.Status, f.Outage = model.Unread, true }, "redis_down", levelBad,
		"Redis does not answer: users can't grab now.", "Bring Redis back"},
	"redis broken": {stateIs(model.Unread), "unreadable", levelBad, "Redis has data of this campaign that can't be read.", "Find out what Redis has"},
	"redis full":   {func(f *facts) { f.Full = true }, "redis_full", levelBad, "Redis is full: it refuses new grabs.", "Give Redis more memory"},
	"ledger down": {func(f *facts) { f.LedgerUnread = true }, "ledger_down", levelBad,
		"The ledger can't be read: payments wait for it. Grabs do not need it.", "Bring the ledger back"},
	"refilling": {func(f *facts) { f.Packets += 5_000 }, "refilling", levelInfo, "5,000 packets are being added. A grab that finds none gets “try again”.", "Wait"},
	"audit": {func(f *facts) { f.Audit, f.differs = model.Verdict{Differences: 3, At: rainAt.Add(3 * time.Minute)}, 1 }, "audit", levelBad,
		"The audit at 20:03:00 found 1 difference of this campaign.", "Look at the differences"},
	"audit elsewhere": {func(f *facts) { f.Audit = model.Verdict{Differences: 3, At: rainAt} }, "audit", levelBad,
		"The audit at 20:00:00 found 3 differences. This server does not know whether they are of this campaign.", "Look at the differences"},
	"audit of others": {func(f *facts) { f.Audit, f.differs = model.Verdict{Differences: 3, At: rainAt}, 0 }, "raining", levelOK,
		"All 35,148 winners are paid, and nothing waits for another sink.", "Nothing to do"},
	"sinks unknown": {func(f *facts) { f.sinks = nil }, "raining", levelCalm, "How far the deliveries are is not known.", "Nothing to do"},
	"lags unknown":  {func(f *facts) { f.Lags = nil }, "raining", levelCalm, "How far the deliveries are is not known.", "Nothing to do"},
	"given up": {func(f *facts) { f.Status, f.Settled = "sold_out", f.Granted-3 }, "sold_out", levelWait,
		"3 winners are not in the ledger, and nothing is on the way to it: perhaps dead letters or the quarantine have them.", "Close the campaign"},
	"coupons":  {func(f *facts) { f.Currency = "" }, "raining", levelOK, "All 35,148 winners are in the ledger, and nothing waits for another sink.", "Nothing to do"},
	"closed":   {stateIs("closed"), "to_refund", levelInfo, "Closed. What is left is not refunded yet.", "Refund"},
	"refunded": {stateIs("refunded"), "to_reveal", levelInfo, "Refunded. The seed is not public yet.", "Reveal the seed"},
	"complete": {func(f *facts) { f.Status, f.Revealed = "refunded", true }, "complete", levelOK,
		"Refunded, and the seed is public: everyone can check the draw.", "Nothing to do"},
}

// Each state of a campaign has one sentence and one next step, in both languages.
func TestEachStateHasOneSentence(t *testing.T) {
	t.Parallel()
	tongues, err := newTongues()
	require.NoError(t, err)
	for name, c := range judgements {
		f := healthy()
		c.change(f)
		j := judge(f)
		text, err := tongues[0].say(j.Say)
		require.NoError(t, err)
		next, err := tongues[0].say(j.Next.Title)
		require.NoError(t, err)
		require.Equal(t, []string{c.code, string(c.level), c.say, c.next}, []string{j.Code, string(j.Level), text, next}, name)
		for _, s := range append(append(j.More, j.Next.Text...), j.Say, j.Next.Title) {
			for _, in := range tongues {
				_, err := in.markup(s)
				require.NoError(t, err)
			}
		}
	}
}

// Nothing is green, nor judged at all, once its reason is older than three refreshes.
func TestNothingOldIsGreen(t *testing.T) {
	t.Parallel()
	for name, c := range judgements {
		f := healthy()
		c.change(f)
		f.now = f.read.Add(3 * time.Second)
		require.Equal(t, c.code, judge(f).Code, name)
		f.now = f.now.Add(time.Millisecond)
		require.Equal(t, levelCalm, judge(f).Level, name)
		require.Equal(t, "old", judge(f).Code, name)
	}
}

// A page shows what a campaign that can't be read had last, in grey and with its time, and times in the campaign's zone.
func TestWhatCanNotBeReadIsLastSeen(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	f.live.Status, f.live.TimeZone, f.live.From, f.live.To = "frozen", "Asia/Shanghai", rainAt, rainAt.Add(time.Hour)
	f.live.Dealt = 50_000
	f.live.Samples = []model.Sample{{At: rainAt.Add(20 * time.Second), Granted: new(int64(31_079))}, {At: rainAt.Add(21 * time.Second)}}
	page := f.ask(t, "viewer", "/campaigns/rain", nil).Body.String()
	require.Contains(t, page, `class="card hero c8 unread"`)
	require.Contains(t, page, `<time datetime="2027-02-06T12:00:20Z" title="2027-02-06 12:00:20 UTC">20:00:20</time>`)
	require.Contains(t, page, `<strong id="granted">31,079</strong>`)
	require.NotContains(t, page, `class="verdict ok"`)
	f.live.Samples = nil
	require.Contains(t, f.ask(t, "viewer", "/campaigns/rain", nil).Body.String(), `<strong id="granted">–</strong>`)
}

// A campaign's page says who paused it and why, and how long it was frozen: in the log, and as bands of the chart.
func TestWhatHappenedHasNamesAndTimes(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	rained := rainAt.AddDate(-1, 0, 0)
	at := func(s int) time.Time { return rained.Add(time.Duration(s) * time.Second) }
	f.live.Status, f.live.TimeZone, f.live.From, f.live.To = "ended", "Asia/Shanghai", rained, at(3600)
	f.live.Moments = []model.Moment{{What: model.Say("First grant"), At: at(3)}, {What: model.Say("The window closes"), At: time.Now().Add(time.Hour)}}
	f.live.Timeline, f.live.Step = []model.Point{{At: at(0), Grants: 5}, {At: at(100), Grants: 5}}, time.Second
	f.live.Spans = []model.Span{{Kind: model.SpanLoad, From: at(-60), To: new(at(-60)), By: "cli:li@ops"},
		{Kind: model.SpanPaused, From: at(10), To: new(at(20)), By: "key:wei", Why: "a typo"},
		{Kind: model.SpanLedgerUnread, From: at(50), To: new(at(75))}, {Kind: model.SpanSinkDown, Sink: "kafka", From: at(90), To: new(at(200))},
		{Kind: model.SpanFrozen, From: at(300)}}
	page := f.ask(t, "viewer", "/campaigns/rain", nil).Body.String()
	log := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page[strings.Index(page, `<ol class="log">`):], " ")
	log = strings.Join(strings.Fields(log), " ")
	require.Contains(t, log, "19:59:00 Loaded · by cli:li@ops 20:00:03 First grant 20:00:10 Paused · over at 20:00:20 · by key:wei: a typo "+
		"20:00:50 The ledger could not be read · over at 20:01:15 20:01:30 Announcements to Kafka: interrupted · over at 20:03:20 "+
		"20:05:00 Frozen: grabs were refused · still going on")
	for _, band := range []string{`<rect class="g-band " x="9.90%" width="9.90%" y="0" height="100%"><title>Paused</title>`,
		`<rect class="g-band bad" x="49.50%" width="24.75%" y="0" height="100%"><title>The ledger could not be read</title>`,
		`<rect class="g-band " x="89.11%" width="10.89%" y="0" height="100%"><title>Announcements to Kafka: interrupted</title>`} {
		require.Contains(t, page, band)
	}
	require.Equal(t, 3, strings.Count(page, `<rect class="g-band `))
	require.NotContains(t, log, "The window closes", "it has not happened yet")
}

// The bars of a campaign count its own grants. The lag of its shards may have grants of other campaigns.
func TestFlowCountsTheCampaignsOwnGrants(t *testing.T) {
	t.Parallel()
	w := &watched{Live: &model.Live{Settled: 90, Lags: []model.Lag{{Sink: "balance", Grants: 500, Oldest: 3 * time.Second},
		{Sink: "kafka", Grants: 700, Oldest: 7 * time.Second}, {Sink: "crm", Grants: 700}}}}
	w.Dealt, w.Granted, w.Status = 200, 100, "open"
	w.Sinks = []model.Finished{{Sink: "balance", Done: 90}, {Sink: "kafka", Done: 40, Dead: 2}}
	var n, waits []int64
	for _, bar := range flowOf(w) {
		n, waits = append(n, bar.N), append(waits, bar.Waits)
		require.False(t, bar.Unread)
	}
	require.Equal(t, []int64{100, 90, 40, 0}, n)
	require.Equal(t, []int64{0, 10, 58, 100}, waits)
	others, oldest := (&facts{Live: w.Live}).onTheWay()
	require.EqualValues(t, 58+100, others, "the sentence says what the bars say")
	require.Equal(t, 7*time.Second, oldest)
	w.Status = model.Unread
	for i, bar := range flowOf(w) {
		require.Equal(t, i != 1, bar.Unread, "the ledger was read")
	}
}
