package cli

import (
	"bytes"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

var noon = time.Date(2026, 2, 17, 12, 0, 0, 0, time.UTC)

func shownRain() *campaigns.Shown {
	return &campaigns.Shown{
		Spec: hongbao.Campaign{ID: "rain", Name: "春雨红包", Currency: "CNY", From: noon, To: noon.Add(time.Hour),
			TimeZone: "Asia/Shanghai"},
		Ledger: campaigns.CampaignInLedger{State: model.MoneyFunded, Packets: 50_000, Funded: 500_000_00, Granted: 1_234_56},
		Redis: &store.Status{State: store.StateOpen, Packets: 50_000, GrantedAmount: 1_300_00,
			Counts: store.Counts{Loaded: 50_000, Granted: 12_034, Left: 37_966}},
		Answers: &model.Answers{Total: 12_037, Counts: []model.AnswerCount{{Name: "granted", N: 12_034}, {Name: "rate_limited", N: 3}}},
	}
}

func TestCampaignOnTheScreen(t *testing.T) {
	t.Parallel()
	oldest := 4.1
	sinks := &deliveries.Status{Sinks: []deliveries.SinkStatus{{Sink: "balance", State: deliveries.SinkWorking},
		{Sink: "kafka", State: deliveries.SinkNoWorker, Waiting: 2_024, Oldest: &oldest, Dead: 1}}}
	before := watchedCampaign{Time: noon, Granted: 10_074, Answers: &model.Answers{Total: 10_037}}
	w := watchCampaign(shownRain(), sinks, &before, noon.Add(2*time.Second))
	var out bytes.Buffer
	require.NoError(t, w.screen(plain{w: &out, colour: true}))
	require.Equal(t, "rain    \x1b[32mopen\x1b[0m  春雨红包\n"+
		"window  2026-02-17 20:00:00 to 2026-02-17 21:00:00 (Asia/Shanghai)\n"+
		"UTC     2026-02-17 12:00:00 to 2026-02-17 13:00:00\n\n"+
		"granted   12,034 of 50,000  24%  980 a second\n"+
		"answered  12,037 requests        1,000 a second\n"+
		"          12,034 granted, 3 rate limited\n"+
		"won       1,300.00 CNY of 500,000.00 CNY\n"+
		"paid      1,234.56 CNY\n"+
		"\x1b[32m█████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░\x1b[0m\n\n"+
		"SINK     STATE      WAITING  SINCE  DEAD\n"+
		"balance  \x1b[32mworking\x1b[0m    0        0s     0\n"+
		"kafka    \x1b[31mno worker\x1b[0m  2,024    4.1s   \x1b[31m1\x1b[0m\n", out.String())
	require.Equal(t, "rain open: 12,034 of 50,000 granted (980 a second); 12,037 requests answered (1,000 a second); 1,234.56 CNY paid; balance working, 0 waiting; "+
		"kafka no worker, 2,024 waiting, 1 dead", w.line())
}

func TestStateOfACampaign(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(c *campaigns.Shown) time.Time{
		"open":        func(*campaigns.Shown) time.Time { return noon },
		"not started": func(*campaigns.Shown) time.Time { return noon.Add(-1) },
		"ended":       func(*campaigns.Shown) time.Time { return noon.Add(time.Hour) },
		"sold out":    func(c *campaigns.Shown) time.Time { c.Redis.Left = 0; return noon },
		"paused":      func(c *campaigns.Shown) time.Time { c.Redis.State = store.StatePaused; return noon },
		"not loaded":  func(c *campaigns.Shown) time.Time { c.Redis = nil; return noon },
		"refunded":    func(c *campaigns.Shown) time.Time { c.Redis, c.Ledger.State = nil, model.MoneyRefunded; return noon },
	} {
		c := shownRain()
		at := change(c)
		require.Equal(t, want, stateOf(c, at))
	}
}

// Both commands that watch follow a deployment, on the stores and at a server, until Ctrl-C.
func TestWatchADeployment(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	at, _, _ := d.server("viewer")
	begin := func(env []string, args ...string) *program {
		return start(t, env, append(args, "--interval", "200ms")...)
	}
	campaigns := []*program{begin(d.env, "campaign", "watch", "rain"), begin(at.env, "campaign", "watch", "rain")}
	all := append([]*program{begin(d.env, "status", "--watch"), begin(at.env, "status", "--watch")}, campaigns...)
	says := func(p *program, pattern string) {
		t.Helper()
		testkit.Eventually(t, 30*time.Second, func() bool { return regexp.MustCompile(pattern).MatchString(p.Out.String()) }, "%s says %q", p.Cmd.Args,
			pattern)
	}
	for _, p := range campaigns {
		says(p, `(?m)^20\S+\+08:00 rain open: 0 of 10 granted`)
	}
	for _, p := range all[:2] {
		says(p, `(?m)^20\S+Z balance no worker, 0 waiting`)
	}
	d.ok("grab", "rain", "u1")
	for _, p := range campaigns {
		says(p, `(?m)^20\S+ rain open: 1 of 10 granted \(\d+ a second\); 0\.00 CNY paid; balance no worker, 1 waiting$`)
	}
	for _, p := range all[:2] {
		says(p, `(?m)^20\S+Z balance no worker, 1 waiting$`)
	}
	for _, p := range all {
		p.Signal(syscall.SIGINT)
		r := p.wait(30 * time.Second)
		require.Zero(t, r.code, r.err)
		require.Regexp(t, `\n20\S+ ended after \d+s: \S.*\n$`, r.out)
		require.NotContains(t, r.out, "\x1b")
		require.Empty(t, r.err)
	}
	require.Equal(t, exitFailed, d.run("campaign", "watch", "nowhere").code)
	d.refused(exitRefused, []string{"campaign", "watch", "rain", "--interval", "1ms"}, "--interval 1ms: want 200ms to 1h0m0s")
	d.refused(exitRefused, []string{"status", "--interval", "2s"}, "--interval needs --watch")
}
