package console

import (
	"bytes"
	"flag"
	"io/fs"
	"net/http"
	"os"
	paths "path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"github.com/hongbao-project/hongbao/internal/base/metrics"
	"github.com/hongbao-project/hongbao/internal/base/metrics/mixin"
	streams "github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

var update = flag.Bool("update", false, "write the runbooks again")

// The runbooks of the program are those of docs/alarms.md, in both languages.
func TestGenerated(t *testing.T) {
	t.Parallel()
	for tag, dir := range map[string]string{"en": "docs", "zh-CN": "docs/zh"} {
		want, folder := runbooksOf(t, dir), "runbooks/"+tag
		if *update {
			require.NoError(t, os.RemoveAll(folder))
			require.NoError(t, os.MkdirAll(folder, 0o755))
			for name, html := range want {
				require.NoError(t, os.WriteFile(filepath.Join(folder, name+".html"), []byte(html), 0o644))
			}
		}
		have := map[string]string{}
		files, err := filepath.Glob(folder + "/*.html")
		require.NoError(t, err)
		for _, file := range files {
			html, err := os.ReadFile(file)
			require.NoError(t, err)
			have[strings.TrimSuffix(filepath.Base(file), ".html")] = string(html)
		}
		require.Equal(t, want, have, "%s is not current: run go generate ./internal/front/console", folder)
	}
}

// runbooksOf makes HTML of alarms.md in a folder: each second-level section by its code, and what is above them as index.
func runbooksOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	source, err := os.ReadFile("../../../" + dir + "/alarms.md")
	require.NoError(t, err)
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table,
		extension.NewCJK(extension.WithEastAsianLineBreaks(extension.EastAsianLineBreaksCSS3Draft)))) // else a line break within a Chinese sentence is a space
	doc := markdown.Parser().Parse(text.NewReader(source))
	require.NoError(t, ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link, ok := n.(*ast.Link); ok && entering {
			link.Destination = []byte(destination(string(link.Destination), dir))
		}
		return ast.WalkContinue, nil
	}))
	html, name := map[string]*bytes.Buffer{"index": {}}, "index"
	title := doc.FirstChild()
	languages := title.NextSibling() // the links to the page in the other language
	for n := languages.NextSibling(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok && h.Level == 2 {
			name = strings.Trim(string(h.Lines().Value(source)), "`")
			html[name] = &bytes.Buffer{}
			continue
		}
		require.NoError(t, markdown.Renderer().Render(html[name], source, n))
	}
	out := map[string]string{}
	for name, b := range html {
		out[name] = b.String()
	}
	return out
}

// destination returns where a link of alarms.md in a folder leads from the console: to another runbook, or to the public
// documents.
func destination(to, dir string) string {
	if name, here := strings.CutPrefix(to, "#"); here {
		return "/runbooks/" + name
	}
	if strings.Contains(to, "://") {
		return to
	}
	file, heading, _ := strings.Cut(to, "#")
	to = strings.TrimSuffix(mixin.Runbooks, "docs/alarms.md#") + paths.Join(dir, file)
	if heading != "" {
		to += "#" + heading
	}
	return to
}

// Every code that a program logs and every code of an alert has a runbook in both languages, which leads to no page that
// does not exist.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	codes := metrics.Codes()
	for _, a := range mixin.Alerts(mixin.Limits{}) {
		codes = append(codes, a.Code)
	}
	require.Greater(t, len(codes), 40)
	for _, in := range f.tongues {
		for _, code := range codes {
			_, ok := in.runbook(code)
			require.True(t, ok, "%s in %s", code, in.Tag)
		}
	}
	link := regexp.MustCompile(`href="([^"]*)"`)
	require.NoError(t, fs.WalkDir(runbookFiles, ".", func(file string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		if d.IsDir() {
			return nil
		}
		html, err := runbookFiles.ReadFile(file)
		require.NoError(t, err)
		for _, to := range link.FindAllStringSubmatch(string(html), -1) {
			if strings.HasPrefix(to[1], "https://") {
				continue
			}
			require.Equal(t, http.StatusOK, f.ask(t, "viewer", to[1], nil).Code, "%s in %s", to[1], file)
		}
		return nil
	}))
}

// A runbook opens without a log-in, because nobody can log in while the ledger is down.
func TestRunbookNeedsNoLogin(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	f.keys.down.Store(true)
	for _, role := range []string{"", "viewer"} {
		w := f.ask(t, role, "/runbooks/redis_down", nil)
		require.Equal(t, http.StatusOK, w.Code)
		require.Contains(t, w.Body.String(), "<strong>Means.</strong> Calls to Redis fail.")
		require.Contains(t, f.ask(t, role, "/runbooks", nil).Body.String(), `<a href="/runbooks/sink_down">`)
	}
	for _, none := range []string{"/runbooks/nothing", "/runbooks/..%2Fzh-CN%2Fredis_down", "/runbooks/%00"} {
		require.Equal(t, http.StatusNotFound, f.ask(t, "", none, nil).Code, none)
	}
}

// Each fault that a page names leads to its runbook. Where there is none, a person has to do something else first: load the
// campaign, resume it, close it, or find out what Redis has.
func TestFaultsLeadToRunbooks(t *testing.T) {
	t.Parallel()
	tongues, err := newTongues()
	require.NoError(t, err)
	leads := func(where, name string) {
		for _, in := range tongues {
			_, ok := in.runbook(name)
			require.True(t, ok, "%s: %q in %s", where, name, in.Tag)
		}
	}
	without := map[string]bool{"before": true, "paused": true, "window_over": true, "unreadable": true}
	for name, c := range judgements {
		f := healthy()
		c.change(f)
		j := judge(f)
		if j.Next.Runbook != "" || (j.Level == levelBad || j.Level == levelWait) && !without[j.Code] {
			leads(name, j.Next.Runbook)
		}
	}
	for _, state := range []deliveries.SinkState{deliveries.SinkUnread, deliveries.SinkPaused, deliveries.SinkDown, deliveries.SinkNoWorker,
		deliveries.SinkBehind} {
		leads(string(state), judgeSink(&deliveries.SinkStatus{Sink: configs.SinkKafka, State: state, Waiting: 1}).Runbook)
	}
	leads("letters", judgeSink(&deliveries.SinkStatus{Sink: configs.SinkKafka, State: deliveries.SinkWorking, Dead: 1}).Runbook)
	require.Empty(t, judgeSink(&deliveries.SinkStatus{Sink: configs.SinkKafka, State: deliveries.SinkWorking}).Runbook)
	for _, a := range []*alarm{alarmOf(nil, errNoLedger, nil), alarmOf(nil, nil, errNoLedger),
		alarmOf([]deliveries.SinkStatus{{Sink: configs.SinkBalance, State: deliveries.SinkNoWorker, Waiting: 1}}, nil, nil)} {
		leads(a.code, a.Runbook)
	}
	paused := healthy()
	paused.Status, paused.Paused = "paused", &model.Pause{By: streams.ByWorker, Why: "other user"}
	require.Equal(t, "campaign_paused", judge(paused).Next.Runbook, "a worker has paused it")
	f := setup(t, nil)
	f.held = []model.Withheld{{Campaign: "rain", Packets: 2}}
	link := regexp.MustCompile(`href="/runbooks/(\w+)">What to do</a>`)
	for page, codes := range map[string][]string{"/sinks": {"dead_letter", "no_worker"}, "/letters": {"dead_letter"},
		"/quarantine": {"campaign_paused"}, "/restores": {"packets_withheld"}} {
		var found []string
		for _, m := range link.FindAllStringSubmatch(f.ask(t, "viewer", page, nil).Body.String(), -1) {
			leads(page, m[1])
			found = append(found, m[1])
		}
		require.Equal(t, codes, found, page)
	}
}
