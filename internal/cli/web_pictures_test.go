//go:build web

package cli

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

var pictures = flag.String("pictures", "", "write pictures of every page and state of the console into this folder")

// The viewers of TestPictures: the name of the picture, and the flags of the key. The last one sees two campaigns.
var viewers = []struct {
	name string
	key  []string
}{{"viewer", []string{"viewer"}}, {"operator", []string{"operator"}}, {"treasurer", []string{"treasurer"}},
	{"scoped", []string{"operator", "--campaign", "rain", "--campaign", "gift*"}}}

// TestPictures writes pictures of every page and of every state of a campaign, for people to judge: in two languages, two
// widths and two colour schemes, as each viewer. The deployment is real, and so are its rain of 2,000 grabs a second and
// each fault.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("without -pictures")
	}
	g := newGallery(t)
	g.before()
	rain := g.rains()
	g.faults()
	rain()
	g.after()
	t.Logf("%d pictures", g.taken)
}

// gallery is a deployment and a browser for each viewer.
type gallery struct {
	*deployment
	grabber  *grabber
	worker   *program
	redis    *testkit.RedisServer
	broker   *testkit.KafkaBroker
	ledger   *proxy.Proxy
	browsers []*browser
	taken    int
}

func newGallery(t *testing.T) *gallery {
	t.Helper()
	g := &gallery{redis: testkit.NewRedis(t, testkit.RedisOptions{}), broker: testkit.NewKafka(t, testkit.KafkaOptions{})}
	g.deployment = setup(t, options{postgres: true, kafka: true, redis: g.redis, broker: g.broker})
	dsn, err := url.Parse(g.dsn)
	require.NoError(t, err)
	g.ledger = testkit.NewProxy(t, dsn.Host)
	dsn.Host = g.ledger.Addr
	g.set("LEDGER_DSN", dsn.String())
	control := testkit.FreeAddr(t)
	g.grabber = g.serve("--control.listen=" + control)
	for _, v := range viewers {
		b := newBrowser(t, "http://"+control)
		key := g.key(v.key...)
		b.open("/login")
		b.do(chromedp.SendKeys("#key", key))
		b.press("main button")
		g.browsers = append(g.browsers, b)
	}
	return g
}

// takes takes pictures of a page as some viewers, or as all.
func (g *gallery) takes(state, path string, as ...string) {
	g.t.Helper()
	for i, v := range viewers {
		if len(as) > 0 && !slices.Contains(as, v.name) {
			continue
		}
		b := g.browsers[i]
		for _, language := range []string{"en", "zh-CN"} {
			b.do(send(network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"Accept-Language": language}}))
			b.open(path)
			for _, width := range []int64{1280, 400} {
				for _, scheme := range []string{"light", "dark"} {
					b.do(send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
						Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
					b.size(width)
					name := fmt.Sprintf("%s-%s-%s-%d-%s.png", state, v.name, language[:2], width, scheme)
					require.NoError(g.t, os.WriteFile(filepath.Join(*pictures, name), get(b, chromedp.FullScreenshot(100)), 0o600))
					g.taken++
				}
			}
		}
	}
}

// judged waits until the page of a campaign says a sentence, and takes its pictures.
func (g *gallery) judged(state, campaign, sentence string) {
	g.t.Helper()
	b := g.browsers[2]
	b.do(send(network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{Headers: network.Headers{"Accept-Language": "en"}}))
	b.open("/campaigns/" + campaign)
	said := ""
	defer func() { g.t.Logf("%s: %s", state, strings.Join(strings.Fields(said), " ")) }()
	testkit.Eventually(g.t, time.Minute, func() bool {
		said = b.text("#verdict")
		return strings.Contains(said, sentence)
	}, "state %s: the page says %q", state, sentence)
	g.takes(state, "/campaigns/"+campaign)
}

// before has campaigns that wait for their window.
func (g *gallery) before() {
	g.ok("campaign", "create", spec(g.t, "gift-new", 200, 20_000))
	g.judged("created", "gift-new", "")
	soon := spec(g.t, "gift-soon", 200, 20_000)
	text, err := os.ReadFile(soon)
	require.NoError(g.t, err)
	later := strings.Replace(string(text), "{from: ", "{from: "+time.Now().Add(30*time.Minute).UTC().Format(time.RFC3339)+" #", 1)
	head, rest, _ := strings.Cut(later, " #")
	_, rest, _ = strings.Cut(rest, ",")
	require.NoError(g.t, os.WriteFile(soon, []byte(head+","+rest), 0o600))
	g.ok("campaign", "create", soon)
	g.ok("campaign", "load", "gift-soon")
	g.judged("not-started", "gift-soon", "")
}

// rains starts a rain of 2,000 grabs a second, of which a fifth are by new users. The function ends it.
func (g *gallery) rains() (end func()) {
	const rate, most = 2_000, 600 // seconds
	g.ok("campaign", "create", spec(g.t, "rain", rate*most/5, rate*most/5*100, fmt.Sprint("max: ", rate*most/5*100), "max: 500"))
	g.ok("campaign", "load", "rain")
	g.worker = g.start("work")
	for range 2 {
		g.worker.says(`"working"`)
	}
	ctx, cancel := context.WithCancel(g.t.Context())
	ended := make(chan struct{})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	go func() {
		defer close(ended)
		_, _ = crowd.Load{Callers: 64, Calls: rate * most, Rate: rate}.Run(ctx, func(_ context.Context, _, i int) error {
			res, err := client.Do(g.grabber.request(http.MethodPost, "/v1/campaigns/rain/grabs", "k1", fmt.Sprint("user-", i/5),
				fmt.Sprintf(`{"request_id":"r%d"}`, i)))
			if err == nil { // in a fault, users are refused
				_ = res.Body.Close()
			}
			return nil
		})
	}()
	g.judged("raining", "rain", "")
	g.takes("campaigns", "/")
	g.takes("stage", "/campaigns/rain/rain", "viewer")
	g.takes("sinks", "/sinks")
	for _, page := range []string{"journal", "restores", "jobs", "trail", "create", "runbooks"} {
		g.takes(page, "/"+page, "viewer", "treasurer")
	}
	g.takes("end", "/campaigns/rain/end", "treasurer")
	g.takes("links", "/campaigns/rain/links", "operator")
	g.takes("user", "/trail?campaign=rain&user=user-0", "operator")
	return func() {
		cancel()
		<-ended
	}
}

// faults has each fault in the rain, one after the other.
func (g *gallery) faults() {
	require.NoError(g.t, g.broker.Kill())
	g.judged("kafka-down", "rain", "Kafka")
	g.takes("kafka-down-sinks", "/sinks", "operator")
	require.NoError(g.t, g.broker.Restart())

	g.worker.Kill()
	g.judged("no-worker", "rain", "No worker")
	g.worker = g.start("work")

	g.ledger.Refuse(true)
	g.ledger.CutAll()
	g.judged("ledger-down", "rain", "The ledger can't be read")
	g.takes("ledger-down-campaigns", "/", "viewer", "scoped")
	g.ledger.Refuse(false)

	require.NoError(g.t, g.rdb.ConfigSet(g.t.Context(), "maxmemory", "1mb").Err())
	g.judged("redis-full", "rain", "Redis is full")
	require.NoError(g.t, g.rdb.ConfigSet(g.t.Context(), "maxmemory", "0").Err())

	require.NoError(g.t, g.redis.Kill())
	g.judged("redis-down", "rain", "Redis does not answer")
	g.takes("redis-down-campaigns", "/", "viewer")
	g.takes("redis-down-sinks", "/sinks", "operator")
	g.worker.Signal(syscall.SIGSTOP) // a worker would open the shard at once
	require.NoError(g.t, g.redis.Restart())
	g.judged("frozen", "rain", "Frozen")
	g.worker.Signal(syscall.SIGCONT)

	g.judged("back", "rain", "")
	g.ok("campaign", "pause", "rain", "--why", "a typo in the name", "--by", "wei")
	g.judged("paused", "rain", "Paused")
	g.ok("campaign", "resume", "rain", "--why", "it is right now", "--by", "wei")
}

// after has campaigns at their end, dead letters, quarantine and an audit with differences.
func (g *gallery) after() {
	g.quiet()
	g.ok("audit", "--campaign", "rain")
	g.campaign("gift-gone", 100, 10_000)
	require.Equal(g.t, 100, g.crowdOf("gift-gone", 0, 120))
	g.quiet()
	g.judged("sold-out", "gift-gone", "")
	g.takes("result", "/campaigns/gift-gone/rain", "viewer")

	over := time.Now().Add(5 * time.Second)
	g.ok("campaign", "create", ends(g.t, "gift-over", over))
	g.ok("campaign", "load", "gift-over")
	require.Equal(g.t, 4, g.crowdOf("gift-over", 0, 4))
	testkit.Eventually(g.t, time.Minute, func() bool { return time.Now().After(over) }, "the window is over")
	g.quiet()
	g.judged("window-over", "gift-over", "")
	g.ok("campaign", "close", "gift-over")
	g.quiet()
	g.judged("closed", "gift-over", "")
	g.ok("campaign", "refund", "gift-over", "--wait", "1m")
	g.judged("refunded", "gift-over", "")
	g.ok("campaign", "reveal", "gift-over")
	g.judged("revealed", "gift-over", "")

	g.worker.Kill()
	g.ok("grab", "rain", "late-1")
	g.buried(configs.SinkBalance)
	g.takes("letters", "/letters", "viewer", "operator")
	g.worker = g.start("work")
	g.plant("rain", grantEntry("rain", 1, "7", "thief")...)
	g.worker.says("grant went to quarantine")
	g.takes("quarantine", "/quarantine", "viewer", "operator")
	g.judged("paused-by-worker", "rain", "Paused")
	require.NotZero(g.t, g.run("audit").code, "the planted grant is in no ledger")
	g.judged("audit-difference", "rain", "")
	g.takes("campaigns-after", "/", "treasurer", "scoped")
}
