package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/guard"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest"
	"github.com/hongbao-project/hongbao/internal/ledger/ledgertest/opened"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
	"github.com/hongbao-project/hongbao/internal/testkit"

	kept "github.com/hongbao-project/hongbao/internal/ledger/access"
)

// The page of an audit shows the differences that an operator has acknowledged, with the operator, the reason and the
// expiry.
func TestAuditPageShowsAcknowledgements(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	known := model.Acknowledged{Difference: model.Difference{Kind: audit.DuplicateInTopic, Where: "topic", Campaign: "rain",
		Packet: 7, Detail: "a copy"}, By: "ann", Why: "a second producer", Until: time.Date(2027, 2, 17, 20, 0, 0, 0, time.UTC)}
	text, err := f.tongues[0].render("job-live", page{View: &jobs.Job{Report: jobs.Report{Audit: &model.AuditReport{Verdict: model.Agrees,
		Acknowledged: []model.Acknowledged{known}}}}})
	require.NoError(t, err)
	for _, want := range []string{"duplicate_in_topic", "a copy", "by ann", "2027", "a second producer"} {
		require.Contains(t, text, want)
	}
}

// A replay that runs in the console is stopped by a person who may replay, and by no other.
func TestReplayIsStopped(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	f := setup(t, func(_ *configs.Console, d *Deps) {
		operations := d.Operations
		d.Operations = func(who *access.Caller) Operations { return lasting{operations(who), began} }
	})
	ended := make(chan *httptest.ResponseRecorder, 1)
	go func() { ended <- f.ask(t, "operator", "/replays", url.Values{"name": {"again"}, "to": {"kafka"}}) }()
	<-began
	list, err := f.jobs.List(t.Context())
	require.ErrorIs(t, err, errNoLedger)
	path := "/jobs/" + list[0].ID
	page := f.ask(t, "operator", path, nil).Body.String()
	require.Contains(t, page, `id="stop"`)
	page = f.ask(t, "viewer", path, nil).Body.String()
	require.NotContains(t, page, `id="stop"`)
	require.Contains(t, page, "A key of role operator, treasurer may stop it.")
	require.Equal(t, http.StatusForbidden, f.ask(t, "viewer", path+"/stop", url.Values{}).Code)
	require.Equal(t, http.StatusNotFound, f.ask(t, "treasurer:other", path+"/stop", url.Values{}).Code)
	require.Equal(t, http.StatusNotFound, f.ask(t, "operator", "/jobs/2/stop", url.Values{}).Code)
	list, _ = f.jobs.List(t.Context())
	require.True(t, list[0].Running())
	require.Equal(t, http.StatusSeeOther, f.ask(t, "operator", path+"/stop", url.Values{}).Code)
	require.Equal(t, path, (<-ended).Header().Get("Location"))
	require.Contains(t, f.ask(t, "operator", path, nil).Body.String(), "The job was stopped by key key-operator.")
}

// A job that one server runs is listed, shown and stopped at another one, which also shows that a job has ended with its
// process.
func TestJobsOfAnotherServer(t *testing.T) {
	t.Parallel()
	ledger := opened.On(t, ledgertest.SQLite(t))
	rows := kept.Of(ledger.Tables())
	server := func(name string) *fixture {
		return setup(t, func(_ *configs.Console, d *Deps) { d.Jobs = jobs.New(rows, name, zap.NewNop()) })
	}
	a, b := server("p1"), server("p2")
	run, path := a.starts(t, &jobs.Order{Name: "load rain", What: model.Say("Load of %s", "rain"), By: "key-operator", Campaign: "rain",
		Stopper: access.LoadCampaign, Do: func(ctx context.Context, _ *jobs.Report) error {
			<-ctx.Done()
			return ctx.Err()
		}})
	list := b.ask(t, "viewer", "/jobs", nil).Body.String()
	require.Contains(t, list, `href="`+path+`">Load of rain</a>`)
	require.NotContains(t, list, `id="unread"`)
	page := b.ask(t, "operator", path, nil).Body.String()
	for _, part := range []string{"The job is running.", "Process p1 runs it.", `id="stop"`, "<time data-local datetime="} {
		require.Contains(t, page, part)
	}
	w := b.ask(t, "operator", "/campaigns/rain/load", url.Values{})
	require.Equal(t, path, w.Header().Get("Location"), "a second request joins it")
	require.Empty(t, b.did)
	require.Equal(t, http.StatusSeeOther, b.ask(t, "operator", path+"/stop", url.Values{}).Code)
	_, err := run.Wait(t.Context(), time.Minute)
	require.ErrorIs(t, err, context.Canceled)
	testkit.Eventually(t, 30*time.Second, func() bool {
		return strings.Contains(b.ask(t, "viewer", path, nil).Body.String(), "The job was stopped by key key-operator.")
	}, "its end is stored")

	_, err = rows.BeginJob(t.Context(), &model.Job{ID: "gone", Name: "load snow", What: model.Say("Load of %s", "snow"), Owner: "p3",
		Began: time.Now()})
	require.NoError(t, err)
	ledger.Tamper(t, db.Stmt{SQL: `UPDATE job SET seen_at = seen_at - 31000 WHERE id = 'gone'`})
	require.Contains(t, b.ask(t, "viewer", "/jobs/gone", nil).Body.String(), "The job has ended with its process")
	require.Contains(t, b.ask(t, "viewer", "/jobs", nil).Body.String(), "ended with its process: start it again")
}

// While the ledger is down, the page says that it lists the jobs of this server only.
func TestJobsWithoutTheLedger(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	_, path := f.starts(t, &jobs.Order{Name: "a", What: model.Say("Audit"), Do: func(context.Context, *jobs.Report) error { return nil }})
	list := f.ask(t, "viewer", "/jobs", nil).Body.String()
	require.Contains(t, list, `id="unread"`)
	require.Contains(t, list, `href="`+path+`"`)
}

// lasting has replays that run until they are stopped.
type lasting struct {
	Operations
	began chan struct{}
}

// StartReplay implements Operations.
func (l lasting) StartReplay(ctx context.Context, _ ops.Replay) (*model.ReplayReport, error) {
	close(l.began)
	<-ctx.Done()
	return nil, ctx.Err()
}

// A panic in a page ends that page only.
func TestPanickingPage(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.WarnLevel)
	f := setup(t, func(_ *configs.Console, d *Deps) { d.Log = zap.New(core) })
	f.Console.source = nil
	w := f.ask(t, "viewer", "/campaigns/rain", nil)
	require.Equal(t, http.StatusInternalServerError, w.Code)
	p := newPoller(time.Second, 1, zap.New(core))
	seen, err := p.watch("/", "key", func(context.Context) (any, error) { panic("a bug") })
	require.NoError(t, err)
	require.True(t, p.readDue(t.Context()))
	p.reads.Wait()
	require.ErrorIs(t, (<-seen.c).err, guard.ErrPanic)
	require.Equal(t, 2, logs.FilterField(zap.String("code", "handler_panicked")).Len())
}

func TestLasts(t *testing.T) {
	t.Parallel()
	tongues, err := newTongues()
	require.NoError(t, err)
	for d, want := range map[time.Duration][]string{7 * time.Millisecond: {"7 ms", "7 毫秒"}, 1500 * time.Millisecond: {"1.5 s", "1.5 秒"}, 400 * time.Millisecond: {"0.4 s", "0.4 秒"},
		39_700 * time.Millisecond: {"39 s", "39 秒"}, 160 * time.Second: {"2 min 40 s", "2 分钟 40 秒"}, 2 * time.Minute: {"2 min", "2 分钟"},
		90 * time.Minute: {"1 h 30 min", "1 小时 30 分钟"}, time.Hour + 20*time.Second: {"1 h", "1 小时"}, 50 * time.Hour: {"2 d 2 h", "2 天 2 小时"}} {
		require.Equal(t, want, []string{tongues[0].lasts(d), tongues[1].lasts(d)})
	}
}

// Funded = granted + left. A refund pays back what is left, so the page shows that amount once.
func TestRefundedIsWhatWasLeft(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	live := &model.Live{Campaign: model.Campaign{ID: "rain", Currency: "CNY", Status: "refunded", InRedis: true, Funded: 100_000, GrantedSum: 285,
		LeftSum: 99_715, Left: 97, Refunded: 99_715}}
	hero := func(live *model.Live) (string, error) {
		var b strings.Builder
		err := f.tongues[0].pages.ExecuteTemplate(&b, "campaign-hero", viewCampaign(&watched{Live: live}, Audited{Live: live}, nil, time.Second, time.Now()))
		return b.String(), err
	}
	text, err := hero(live)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(text, "997.15"), text)
	require.Contains(t, text, "<dt>Refunded</dt>")
	require.NotContains(t, text, "<dt>Left</dt>")
	live.Refunded, live.Status = 0, "closed"
	text, err = hero(live)
	require.NoError(t, err)
	require.Contains(t, text, "<dt>Left</dt>")
}
