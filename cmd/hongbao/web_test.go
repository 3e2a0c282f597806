//go:build web

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"maps"
	"net/http"
	"net/url"
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
	"go.yaml.in/yaml/v3"

	"github.com/hongbao-project/hongbao/internal/configs"
)

var updateShots = flag.Bool("update", false, "write the screenshots of docs/img anew")

// widths are those of a desk, a tablet and a phone.
var widths = []int64{1280, 768, 390}

// browser is a Chromium that looks at one server.
type browser struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // chromedp keeps its browser in it
	base string
	axe  string

	mu      sync.Mutex
	strange []string // requests to anybody else
	faults  []string // what the page itself complained about
}

// newBrowser starts one. scripts/setup.sh web installs Chromium and axe-core.
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
				b.note(&b.strange, u.URL)
			}
		}
	})
	notes.Go(func() {
		for e := range entries {
			// A refused login is an answer of the server, not a fault of the page.
			if x := e.Entry; x != nil && x.Level == "error" && x.Source != "network" {
				b.note(&b.faults, x.Text)
			}
		}
	})
	t.Cleanup(notes.Wait)
	t.Cleanup(cancel)
	return b
}

// send is an action that sends a command of the protocol.
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

// patience is how long the browser may take for a step.
const patience = 30 * time.Second

// do runs actions.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if chromedp.FromContext(b.ctx).Browser == nil {
		require.NoError(b.t, chromedp.Do(b.ctx, actions...)) // it lives as long as the context of its first call
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, actions...))
}

// get runs an action that gives something.
func get[T any](b *browser, a chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
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

// sees waits until the page shows a text, without loading it again.
func (b *browser) sees(selector, text string) {
	b.t.Helper()
	get(b, chromedp.Poll[bool](fmt.Sprintf(`(document.querySelector(%q)?.innerText ?? "").includes(%q)`, selector, text)))
}

// press clicks what leads to another page, and waits for that.
func (b *browser) press(selector string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	_, err := chromedp.RunResponse(ctx, chromedp.Click(selector))
	require.NoError(b.t, err, selector)
	b.do(chromedp.WaitVisible("main"))
}

// fault is what axe-core finds.
type fault struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML string }
}

// check looks at the page at three widths and in both colour schemes: nothing hangs over the edge, and axe-core finds no
// serious fault. It takes a picture if name is not empty and -update is set.
func (b *browser) check(name string) {
	b.t.Helper()
	for i, width := range widths {
		scheme := []string{"light", "dark", "light"}[i]
		b.size(width)
		b.do(send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
		over := get(b, chromedp.Evaluate[float64](
			`document.documentElement.scrollWidth - document.documentElement.clientWidth`))
		require.LessOrEqual(b.t, over, 0.0, "%s at %d: the page hangs over the edge", b.path(), width)
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
	require.Empty(b.t, b.strange, "requests left for another server")
	require.Empty(b.t, b.faults)
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

// picture writes docs/img/console-NAME.png as a desk sees it, and console-NAME-phone.png of the campaign.
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

// inFewColours gives a picture in its 256 commonest colours: a third of the bytes, and nobody sees it.
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

// A person works with the console in a real Chromium, from the login to the audit.
func TestConsole(t *testing.T) {
	d := setup(t, options{kafka: true})
	key, control := d.key("treasurer"), freeAddr(t)
	g := d.serve("--serve.control_listen=" + control)
	b := newBrowser(t, "http://"+control)
	b.creates(key, spec(t, "spring-rain", 200, 20_000))
	b.logIn(key)
	b.requeues(d)
	b.watchesLive(d, g)
	b.decides(d, g)
	b.pausesASink(d)
	b.audits()
	b.open("/jobs")
	b.sees("#live", "Audit")
	b.check("")
	b.press(`form[action="/logout"] button`)
	require.Contains(t, b.path(), "/login")
	b.open("/sinks")
	require.Contains(t, b.path(), "/login?to=", "the session is over")
	journal := d.ok("journal", "--json")
	id := strings.Split(key, "_")[1]
	for _, action := range []string{"requeue_letters", "decide_quarantine", "resume_campaign", "pause_sink", "resume_sink"} {
		require.Regexp(t, `"who": ?"key:`+id+`",\s*"action": ?"`+action+`"`, journal)
	}
}

// creates creates and loads a campaign by the administration API, on the same listener.
func (b *browser) creates(key, path string) {
	b.t.Helper()
	var fields map[string]any
	text, err := os.ReadFile(path)
	require.NoError(b.t, err)
	require.NoError(b.t, yaml.Unmarshal(text, &fields))
	body, err := json.Marshal(fields)
	require.NoError(b.t, err)
	for _, c := range [][2]string{{"/v1/campaigns", string(body)}, {"/v1/campaigns/spring-rain/load", "{}"}} {
		r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.base+c[0], strings.NewReader(c[1]))
		require.NoError(b.t, err)
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", c[0])
		res, err := http.DefaultClient.Do(r)
		require.NoError(b.t, err)
		answer, err := io.ReadAll(res.Body)
		require.NoError(b.t, errors.Join(err, res.Body.Close()))
		require.Less(b.t, res.StatusCode, 300, "%s: %s", c[0], answer)
	}
}

func (b *browser) logIn(key string) {
	b.t.Helper()
	b.open("/sinks")
	require.Equal(b.t, "/login?to="+url.QueryEscape("/sinks"), b.path())
	b.check("")
	b.do(chromedp.SendKeys("#key", "hb_wrong_wrong"))
	b.press("main button")
	require.Contains(b.t, b.text("main"), "good for nothing")
	b.do(chromedp.SendKeys("#key", key))
	b.press("main button")
	require.Equal(b.t, "/sinks", b.path())
	require.Empty(b.t, get(b, chromedp.Evaluate[string]("document.cookie")), "no script reads the session")
}

// watchesLive: numbers and chart move on a page that is not loaded again, while a worker works and users grab.
func (b *browser) watchesLive(d *deployment, g *grabber) {
	b.t.Helper()
	b.open("/")
	b.sees("#live", "Spring rain")
	b.check("campaigns")
	b.press("#c-spring-rain")
	b.sees("#status", "Live")
	w := d.start("work")
	for wave := range 6 {
		for i := range 5 * (wave + 1) {
			user := fmt.Sprint("user-", wave, "-", i)
			require.Equal(b.t, "granted", g.grab("spring-rain", user, "r1").Outcome)
			require.Equal(b.t, "already_granted", g.grab("spring-rain", user, "r2").Outcome)
		}
		b.sees("#granted", fmt.Sprint(2+5*(wave+1)*(wave+2)/2)) // the page moves by itself
	}
	b.sees("#live", "107 grants")
	b.sees("#live", "Timeline")
	b.do(chromedp.WaitVisible("#rates .u-legend"))
	b.check("campaign")
	status, _ := g.call(http.MethodGet, "/v1/campaigns/spring-rain", "k1", "user-0-0", "")
	require.Equal(b.t, http.StatusOK, status)
	d.quiet()
	w.kill()
}

// requeues: a dead letter is found from the sinks, looked at, and delivered after all.
func (b *browser) requeues(d *deployment) {
	b.t.Helper()
	for i := range 2 {
		d.ok("grab", "spring-rain", fmt.Sprint("late-", i))
	}
	d.buried(configs.SinkBalance)
	b.open("/sinks")
	b.check("sinks")
	b.press("#dead-balance")
	b.check("letters")
	b.press("main table a")
	require.Contains(b.t, b.text("main"), "the account is closed")
	b.check("")
	b.do(chromedp.SendKeys("#why", "the account is open again"))
	b.press("#requeue")
	b.sees("#result", "Done in")
	b.open("/letters?sink=balance")
	b.do(chromedp.Click(`input[name="all"]`), chromedp.Click(`input[name="dry"]`), chromedp.SendKeys("#why", "try"))
	b.press("#requeue")
	require.Contains(b.t, b.text("main"), "dry run: 1 would be")
	b.open("/letters?sink=balance")
	b.do(chromedp.Click(`input[name="all"]`), chromedp.SendKeys("#why", "the account is open again"))
	b.press("#requeue")
	b.sees("#result", "Done in")
	b.check("")
	b.open("/letters")
	require.Contains(b.t, b.text("main"), "No dead letter is there.")
}

// decides: a grant that contradicts the ledger is voided with who and why, and the campaign goes on.
func (b *browser) decides(d *deployment, g *grabber) {
	b.t.Helper()
	w := d.start("work")
	d.quiet()
	d.plant("spring-rain", grantEntry("spring-rain", 1, "7", "thief")...)
	w.says("grant went to quarantine")
	b.open("/quarantine")
	b.check("")
	b.press("main table a")
	require.Contains(b.t, b.text("main"), "thief")
	b.check("quarantine")
	b.do(chromedp.Click(`input[value="void"]`), chromedp.SendKeys("#why", "nobody granted it"))
	b.press("#decide")
	require.Contains(b.t, b.text("#decision"), "nobody granted it")
	b.open("/campaigns/spring-rain")
	b.sees("#live", "Paused")
	b.press("#resume")
	b.sees("#live", "Open")
	require.Equal(b.t, "granted", g.grab("spring-rain", "after", "r1").Outcome)
	d.quiet()
	w.kill()
	b.open("/trail")
	b.do(chromedp.SendKeys("#campaign", "spring-rain"), chromedp.SendKeys("#user", "after"))
	b.press("main button")
	require.Equal(b.t, 6, strings.Count(b.text("main"), "there\n"), b.text("main"))
	b.check("trail")
}

// pausesASink: grants wait while it is paused, and none is lost.
func (b *browser) pausesASink(d *deployment) {
	b.t.Helper()
	w := d.start("work")
	b.open("/sinks")
	b.press("#turn-kafka")
	b.sees("#live", "Paused")
	d.ok("grab", "spring-rain", "patient")
	b.sees(`section[aria-labelledby="s-kafka"]`, "Waiting grants\n1")
	b.check("")
	b.press("#turn-kafka")
	b.sees(`section[aria-labelledby="s-kafka"]`, "Waiting grants\n0")
	d.quiet()
	w.kill()
}

// audits: the voided grant is no difference any more, so all agrees.
func (b *browser) audits() {
	b.t.Helper()
	b.open("/campaigns/spring-rain")
	b.press("#audit")
	b.sees("main", "Verdict")
	b.check("")
	b.open("/campaigns/spring-rain")
	b.sees("#live", "ago")
}
