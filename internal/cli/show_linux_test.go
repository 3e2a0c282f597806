package cli

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/store"
)

func TestShowACampaignToPeople(t *testing.T) {
	t.Parallel()
	c := shownRain()
	c.Hash, c.Spec.Kind, c.Spec.Durability, c.Spec.Sponsor = "6a66", hongbao.KindRedPacket, hongbao.DurabilityFast, "acme"
	c.Spec.Limits = []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerDay, Max: 2}}
	c.Spec.Codes = &hongbao.Codes{Pattern: "RAIN-#"}
	c.Ledger.Codes = 49_000
	c.Redis.State, c.Redis.Pause = store.StatePaused, &store.Pause{By: "ann", Why: "closed", At: noon.Add(time.Minute)}
	c.Redis.Places = []store.PlaceStatus{{State: store.StatePaused, Shard: 3, Counts: store.Counts{Loaded: 50_000, Granted: 12_034,
		Left: 37_966}}}
	c.TopUps = []model.TopUp{{ID: "more", Packets: 1_000, Total: 100_000, Currency: "CNY", By: "bob", Why: "demand", Hash: "77aa"}}
	text := func() string {
		var out bytes.Buffer
		require.NoError(t, writeShown(plain{w: &out}, c, noon))
		return out.String()
	}
	require.Equal(t, `rain  paused  春雨红包
paused    by ann at 2026-02-17 20:01:00 (Asia/Shanghai, 12:01:00 UTC): closed
window    2026-02-17 20:00:00 to 2026-02-17 21:00:00 (Asia/Shanghai)
UTC       2026-02-17 12:00:00 to 2026-02-17 13:00:00
kind      red packet, durability fast, by acme
limit     2 by user, per day
packets   12,034 of 50,000 granted, 37,966 left
shard 3   12,034 of 50,000 granted, 37,966 left, paused
answered  12,037 requests to all servers: 12,034 granted, 3 rate limited
money     funded 500,000.00 CNY, paid 1,234.56 CNY, refunded 0.00 CNY
codes     49,000 of 50,000 stored
hash      6a66
top-up    more: 1,000 packets, 1,000.00 CNY, by bob: demand
          hash 77aa
`, text())
	c.Redis = nil
	require.Contains(t, text(), "rain  not loaded  春雨红包\n")
	require.Contains(t, text(), "packets  50,000, not in Redis\n")
}

// `hongbao tail` prints lines for people on a terminal, and JSON elsewhere and with --json.
func TestTailForPeople(t *testing.T) {
	t.Parallel()
	line := tailLine(&deliveries.Tailed{Event: "0-3", Campaign: "rain", Packet: 17, User: "u1", Amount: 123_456, Currency: "CNY",
		Time: noon.Add(123 * time.Millisecond), Code: "SECRET"})
	require.Equal(t, "2026-02-17T12:00:00.123Z  rain  u1  1,234.56 CNY  packet 17  event 0-3", line)
	line = tailLine(&deliveries.Tailed{Event: "0-3", Campaign: "tea", Packet: 17, User: "u1", Time: noon})
	require.Equal(t, "2026-02-17T12:00:00.000Z  tea  u1  coupon  packet 17  event 0-3", line)
	d := setup(t, options{kafka: true})
	d.campaign("rain", 10, 1_000)
	d.ok("grab", "rain", "u1")
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	require.Regexp(t, `^\{"partition":.*"user":"u1".*\}\n$`, d.ok("tail"))
	require.Regexp(t, `^20\S+Z  rain  u1  \d\.\d\d CNY  packet 1  event 0-1\n$`, d.onTerminal(t, 80, "tail 2>/dev/null").ends(0))
	require.Regexp(t, `^\{"partition":.*"user":"u1".*\}\n$`, d.onTerminal(t, 80, "tail --json 2>/dev/null").ends(0))
}

// On a terminal of 80 columns the table of `audit` becomes several that do not wrap. In a pipe it stays one table.
func TestTablesOnANarrowTerminal(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("spring-rain-of-2026", 10_000, 100_000_000)
	text := d.onTerminal(t, 80, "audit 2>/dev/null", "NO_COLOR=1").ends(0)
	require.Contains(t, text, "10,000")
	require.Greater(t, strings.Count(text, "spring-rain-of-2026"), 1, text)
	fits(t, 80, text)
	require.Equal(t, 1, strings.Count(d.ok("audit"), "spring-rain-of-2026"))
}

// `campaign show` and `campaign watch` of a campaign with a long Chinese name fit into the terminal, and name each thing
// once.
func TestShowOnATerminal(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("spring-rain-of-2026", 10_000, 100_000_000, "name: Spring rain", "name: 春雨红包大派送第二季，人人有份")
	for _, columns := range []int{80, 120} {
		shown := d.onTerminal(t, columns, "campaign show spring-rain-of-2026 2>/dev/null", "NO_COLOR=1").ends(0)
		fits(t, columns, shown)
		require.Regexp(t, `^spring-rain-of-2026  open  春雨红包大派送第二季，人人有份\nwindow `, shown)
		require.Equal(t, 1, strings.Count(shown, "window "), shown)
		require.Contains(t, shown, " funded 1,000,000.00 CNY, paid 0.00 CNY, refunded 0.00 CNY\n")
		require.Equal(t, shown, d.ok("campaign", "show", "spring-rain-of-2026"), "it is the same in a pipe")
		watch := d.onTerminal(t, columns, "campaign watch spring-rain-of-2026", "NO_COLOR=1")
		watch.says("SINK +STATE")
		watch.press("\x03")
		frames, _, _ := strings.Cut(watch.ends(0), "ended after")
		fits(t, columns, frames)
	}
}
