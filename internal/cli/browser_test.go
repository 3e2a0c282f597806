//go:build web

package cli

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var updateShots = flag.Bool("shots", false, "write the screenshots of docs/img again")

// widths has the widths of a desktop, a tablet, a phone and the smallest phone.
var widths = []int64{1280, 768, 390, 320}

// browser is a Chromium for the pages of one server.
type browser struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // chromedp keeps its browser in it
	base string
	axe  string

	mu              sync.Mutex
	foreignRequests []string // requests to any server but base
	faults          []string // errors that the page itself logged
}

// newBrowser starts a browser. scripts/setup.sh web installs Chromium and axe-core.
func newBrowser(t *testing.T, base string) *browser {
	t.Helper()
	axe, err := os.ReadFile(filepath.Join(cacheDir(), "axe-core", "package", "axe.min.js"))
	require.NoError(t, err, "run scripts/setup.sh web")
	b := &browser{t: t, base: base, axe: string(axe)}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1280, 900),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("no-pings", true))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	b.ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b.do(send(network.Enable, network.EnableParams{}), send(log.Enable, cdp.Empty{}))
	requests, entries := chromedp.Events(b.ctx, network.RequestWillBeSent), chromedp.Events(b.ctx, log.EntryAdded)
	var notes sync.WaitGroup
	notes.Go(func() {
		for e := range requests {
			if u := e.Request; u != nil && !strings.HasPrefix(u.URL, base+"/") && !strings.HasPrefix(u.URL, "data:") {
				b.note(&b.foreignRequests, u.URL)
			}
		}
	})
	notes.Go(func() {
		for e := range entries {
			// A refused login logs a network error, which is expected.
			if x := e.Entry; x != nil && x.Level == "error" && x.Source != "network" {
				b.note(&b.faults, x.Text)
			}
		}
	})
	t.Cleanup(notes.Wait)
	t.Cleanup(cancel)
	return b
}

// send returns an action that sends a command of the DevTools protocol.
func send[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, c, params)
		return chromedp.Void{}, err
	}
}

func (b *browser) note(to *[]string, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*to = append(*to, text)
}

func cacheDir() string {
	if dir := os.Getenv("HONGBAO_WEB_DIR"); dir != "" {
		return dir
	}
	return filepath.Join("..", "..", ".cache")
}

// stepTimeout bounds each step of the browser.
const stepTimeout = 30 * time.Second

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if chromedp.FromContext(b.ctx).Browser == nil {
		require.NoError(b.t, chromedp.Do(b.ctx, actions...)) // the browser lives as long as this context
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, actions...))
}

// get runs an action that returns a value.
func get[T any](b *browser, a chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	require.NoError(b.t, err)
	return v
}

func (b *browser) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base+path), chromedp.WaitVisible("main"))
}

func (b *browser) text(selector string) string {
	b.t.Helper()
	return get(b, chromedp.Text(selector))
}

// sees waits until a live update shows the text in the element. It does not reload the page.
func (b *browser) sees(selector, text string) {
	b.t.Helper()
	get(b, chromedp.Poll[bool](fmt.Sprintf(`(document.querySelector(%q)?.innerText ?? "").includes(%q)`, selector, text)))
}

// seesOnly waits until the element has exactly this text. It does not reload the page.
func (b *browser) seesOnly(selector, text string) {
	b.t.Helper()
	get(b, chromedp.Poll[bool](fmt.Sprintf(`document.querySelector(%q)?.innerText.trim() === %q`, selector, text)))
}

// seesTimes waits until the element shows the text at least n times. It does not reload the page.
func (b *browser) seesTimes(n int, selector, text string) {
	b.t.Helper()
	get(b, chromedp.Poll[bool](fmt.Sprintf(`(document.querySelector(%q)?.innerText ?? "").split(%q).length > %d`, selector, text, n)))
}

// press clicks an element that leads to another page, and waits for that page. If a live update replaces the element
// before the click, press clicks the new element.
func (b *browser) press(selector string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	_, err := chromedp.RunResponse(ctx, chromedp.Click(selector))
	for err != nil && strings.Contains(err.Error(), "Could not find node with given id") {
		_, err = chromedp.RunResponse(ctx, chromedp.Click(selector))
	}
	require.NoError(b.t, err, selector)
	b.do(chromedp.WaitVisible("main"))
}

// fault is a violation that axe-core reports.
type fault struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML string }
}

// check checks the page at each width and in both colour schemes: no element overflows the page, and axe-core reports
// no serious violation. It takes a screenshot if name is not empty and -shots is set.
func (b *browser) check(name string) {
	b.t.Helper()
	for i, width := range widths {
		scheme := []string{"light", "dark"}[i%2]
		b.size(width)
		b.do(send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
		over := get(b, chromedp.Evaluate[float64](
			`document.documentElement.scrollWidth - document.documentElement.clientWidth`))
		require.LessOrEqual(b.t, over, 0.0, "%s at %d: the page is wider than the window: %s", b.path(), width, b.beyond())
		get(b, chromedp.Evaluate[int](b.axe+";1"))
		found := get(b, chromedp.Evaluate[[]fault](`axe.run(document).then((r) => r.violations.map((v) =>
			({ID: v.id, Impact: v.impact, Help: v.help, Nodes: v.nodes.map((n) => ({HTML: n.html}))})))`,
			chromedp.EvalAwaitPromise))
		for _, f := range found {
			require.NotContains(b.t, []string{"serious", "critical"}, f.Impact, "%s at %d: %+v", b.path(), width, f)
		}
		b.picture(name, width)
	}
	b.size(widths[0])
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.foreignRequests, "requests left for another server")
	require.Empty(b.t, b.faults)
}

// beyond names the elements that end outside the window, other than in a region that scrolls.
func (b *browser) beyond() string {
	b.t.Helper()
	return get(b, chromedp.Evaluate[string](`[...document.querySelectorAll("body *")].filter((x) => !x.closest(".scroll") &&
		x.getBoundingClientRect().right > document.documentElement.clientWidth).slice(0, 9)
		.map((x) => x.tagName + "." + x.getAttribute("class") + "#" + x.id).join(" ")`))
}

func (b *browser) size(width int64) {
	b.t.Helper()
	b.do(send(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900,
		DeviceScaleFactor: 1, Mobile: width < 500}))
}

func (b *browser) path() string {
	b.t.Helper()
	return strings.TrimPrefix(get(b, chromedp.Location()), b.base)
}

// picture writes docs/img/console-NAME.png if the width is a desktop's and -shots is set. For the name campaign it also
// writes console-campaign-phone.png at a phone's width.
func (b *browser) picture(name string, width int64) {
	b.t.Helper()
	suffix := map[int64]string{1280: ""}
	if name == "campaign" {
		suffix[390] = "-phone"
	}
	end, wanted := suffix[width]
	if name == "" || !wanted || !*updateShots {
		return
	}
	shot, err := png.Decode(bytes.NewReader(get(b, chromedp.CaptureScreenshot())))
	require.NoError(b.t, err)
	file, err := os.Create(filepath.Join("..", "..", "docs", "img", "console-"+name+end+".png"))
	require.NoError(b.t, err)
	small := png.Encoder{CompressionLevel: png.BestCompression}
	require.NoError(b.t, small.Encode(file, inFewColours(shot)))
	require.NoError(b.t, file.Close())
}

// inFewColours returns a picture in its 256 most frequent colours. The file is a third as large, and the difference is
// invisible.
func inFewColours(shot image.Image) image.Image {
	count := map[color.Color]int{}
	area := shot.Bounds()
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			count[shot.At(x, y)]++
		}
	}
	all := slices.Collect(maps.Keys(count))
	slices.SortFunc(all, func(a, b color.Color) int { return count[b] - count[a] })
	few := image.NewPaletted(area, all[:min(len(all), 256)])
	draw.Draw(few, area, shot, area.Min, draw.Src)
	return few
}
