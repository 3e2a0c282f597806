//go:build web

package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// words are what a page says in a language.
type words struct{ language, mistake, ready, spring string }

// A person creates campaigns by the form, in English and in Chinese, with scripts and without. The ledger has what was
// typed: amounts in yuan, and times on the clock of the campaign's zone.
func TestConsoleCreatesByForm(t *testing.T) {
	d := setup(t, options{})
	control := testkit.FreeAddr(t)
	d.serve("--control.listen=" + control)
	b := newBrowser(t, "http://"+control)
	b.logIn(d.key("treasurer"))
	for id, say := range map[string]words{
		"rain-en": {"en", "This is not an amount in CNY. Write it as 12.50.", "1,000 packets, 2,000.50 CNY in all.", "Spring rain"},
		"rain-zh": {"zh-CN", "不是有效的 CNY 金额。请写成 12.50 这样。", "1,000 个，共 2,000.50 元。", "新春红包雨"},
	} {
		if get(b, chromedp.Evaluate[string](`document.documentElement.lang`)) != say.language {
			b.open("/")
			b.press(`button[value="` + say.language + `"]`)
		}
		for _, scripts := range []bool{true, false} {
			b.do(send(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !scripts}))
			if !scripts {
				id += "-plain"
			}
			b.createsByForm(d, id, say, scripts)
		}
		b.do(send(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{}))
	}
}

// createsByForm fills in the form, corrects a mistake, passes by the other tab and creates the campaign.
func (b *browser) createsByForm(d *deployment, id string, say words, axe bool) {
	b.t.Helper()
	look := func() {
		b.t.Helper()
		if axe {
			b.check("")
		}
	}
	b.open("/create")
	look()
	day := time.Now().AddDate(0, 0, 40)
	from, to := day.Format("2006-01-02")+"T20:00", day.Format("2006-01-02")+"T20:10:30"
	for field, value := range map[string]string{"#id": id, "#name": say.spring, "#total": "2,000.505", "#packets": "1,000", "#min": "0.01",
		"#max": "20", "#zone": "Asia/Shanghai", "#from": from, "#to": to, "#sponsor": "acme"} {
		b.do(chromedp.SetValue(field, value))
	}
	b.press("#add-limit")
	b.do(chromedp.SetValue("#limit-1-by", "device"), chromedp.SetValue("#limit-1-max", "3"), chromedp.SetValue("#limit-1-per", "day"))
	b.press("#check")
	require.Contains(b.t, b.text("#answer"), say.mistake)
	require.Contains(b.t, b.text(".field:has(#total)"), say.mistake, "it is beside its field")
	look()
	b.do(chromedp.SetValue("#total", "2,000.50"))
	b.press("#to-yaml")
	require.Contains(b.t, get(b, chromedp.Value("#spec")), "\ntotal: 200050\n")
	look()
	b.press("#to-form")
	require.Equal(b.t, "2,000.50", get(b, chromedp.Value("#total")))
	b.press("#check")
	require.Contains(b.t, b.text("#answer"), say.ready)
	look()
	b.do(chromedp.SetValue("#packets", "1000"), chromedp.SetValue("#max", "20.50"))
	b.press("#create") // something has changed since the check: it is shown again
	require.Contains(b.t, b.path(), "/create")
	require.Contains(b.t, b.text("#answer"), strings.Split(say.ready, " ")[0])
	b.press("#create")
	require.Contains(b.t, b.path(), "/campaigns/"+id)

	zone, err := time.LoadLocation("Asia/Shanghai")
	require.NoError(b.t, err)
	at := func(text string) time.Time {
		t, err := time.ParseInLocation("2006-01-02T15:04:05", text, zone)
		require.NoError(b.t, err)
		return t.UTC()
	}
	require.Equal(b.t, hongbao.Campaign{ID: id, Name: say.spring, Kind: hongbao.KindRedPacket, Currency: "CNY", Total: 200_050, Packets: 1000,
		Split: hongbao.Split{Mode: hongbao.SplitRandom, Min: 1, Max: 2050}, From: at(from + ":00"), To: at(to), TimeZone: "Asia/Shanghai",
		Limits:  []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 1}, {By: "device", Per: hongbao.PerDay, Max: 3}},
		Sponsor: "acme", Durability: hongbao.DurabilityFast}, d.show(id).Spec)
}
