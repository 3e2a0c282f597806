//go:build web

package cli

import (
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/dev/crowd"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The page of a campaign follows a rain of thousands of grabs a second and the audit after it, without a reload. With
// -shots the rain is longer: it is the picture in README.
func TestConsoleInARain(t *testing.T) {
	d := setup(t, options{kafka: true, postgres: true})
	rate, seconds := 2_000, 10
	if *updateShots {
		rate, seconds = 3_000, 40
	}
	packets := rate * seconds * 3 / 5
	all := fmt.Sprint(packets/1000, ",000") // as the page writes it
	key, control := d.key("treasurer"), testkit.FreeAddr(t)
	g := d.serve("--control.listen=" + control)
	d.ok("campaign", "create", spec(t, "spring-rain", int64(packets), int64(packets)*100, "max: "+fmt.Sprint(packets*100), "max: 500"))
	d.ok("campaign", "load", "spring-rain")
	b := newBrowser(t, "http://"+control)
	b.logIn(key)
	b.open("/campaigns/spring-rain")
	b.sees("#status", "Live")
	w := d.start("work")

	grabs := make([]*http.Request, rate*seconds)
	for i := range grabs {
		grabs[i] = g.request(http.MethodPost, "/v1/campaigns/spring-rain/grabs", "k1", fmt.Sprint("user-", i),
			fmt.Sprintf(`{"request_id":"r%d"}`, i))
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	_, err := crowd.Load{Callers: 64, Calls: len(grabs), Rate: rate}.Run(t.Context(), func(_ context.Context, _, i int) error {
		res, err := client.Do(grabs[i])
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("grab %d: status %s", i, res.Status)
		}
		return nil
	})
	require.NoError(t, err)
	b.sees("#granted", all) // without a reload
	d.quiet()
	b.sees("#verdict", "All "+all+" winners are paid")
	d.ok("audit")
	b.sees("#live", "agreed")
	b.seesOnly("#status", "Live")
	b.savesPicture()
	b.press("#stage")
	b.sees("main", "Sold out after")
	require.Equal(t, all, b.text("#granted"))
	require.NotContains(t, b.text("body"), "CNY", "a stage shows no money")
	b.seesOnly("#status", "Live")
	require.True(t, get(b, chromedp.Evaluate[bool](`(() => { const big = document.querySelector("svg.big");
		return big.querySelector("text").getComputedTextLength() <= big.viewBox.baseVal.width })()`)), "the number fits")
	falls := `getComputedStyle(document.querySelector(".drops svg")).animationName`
	require.Equal(t, "fall", get(b, chromedp.Evaluate[string](falls)))
	b.check("")
	b.do(send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-reduced-motion", Value: "reduce"}}}))
	require.Equal(t, "none", get(b, chromedp.Evaluate[string](falls)))
	b.open("/campaigns/spring-rain/rain?money=1")
	b.seesOnly("#status", "Live")
	require.Equal(t, all+".00 CNY", b.text("#money"))
	b.press("footer a")
	b.sees("#verdict", "All "+all+" winners are paid")
	w.Kill()
	b.do(send(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1280, Height: 1040,
		DeviceScaleFactor: 1}))
	b.picture("rain", widths[0])
}

// savesPicture saves the picture of the result as PNG. The browser draws it: no part of it is empty, and nothing is blocked.
func (b *browser) savesPicture() {
	b.t.Helper()
	dir := b.t.TempDir()
	b.do(send(cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{Behavior: "allow", DownloadPath: dir}))
	b.do(chromedp.Click("#png"))
	file := filepath.Join(dir, "spring-rain.png")
	require.Eventually(b.t, func() bool {
		f, err := os.Open(file)
		if err != nil {
			return false
		}
		defer f.Close()
		picture, err := png.Decode(f)
		if err != nil {
			return false
		}
		require.Equal(b.t, image.Rect(0, 0, 2400, 1260), picture.Bounds())
		colours := map[color.Color]bool{}
		for x := range 2400 {
			colours[picture.At(x, 440)] = true // through the number
		}
		require.Greater(b.t, len(colours), 50)
		return true
	}, stepTimeout, 100*time.Millisecond)
}
