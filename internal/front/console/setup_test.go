package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
	"github.com/hongbao-project/hongbao/internal/ops/payments"
)

// fakeSource implements Source, whose list has two campaigns, and Actions. did records what callers did.
type fakeSource struct {
	reads atomic.Int64
	did   []string

	denied  int
	logins  []string
	live    model.Live
	err     error
	refuses error // returned by the calls that create a campaign
	trails  model.Trails
	// restored is the result of Restored.
	restored []model.Restored
	// dead are the letters of LetterGroups; nil for the one that Letter returns. moreDead is its More.
	dead         []model.Letter
	moreDead     bool
	inQuarantine []model.Quarantined // the result of Quarantine; nil for the one that Quarantined returns
	held         []model.Withheld
	heldErr      error
	next         string // Next of the reports about letters
	missing      int64  // of the ending of a campaign
	settling     bool
	refunded     *campaigns.Refunded
	withheld     int64
	after        string // After of the last requeue
}

func (b *fakeSource) Campaigns(_ context.Context, s model.Search) (model.Campaigns, error) {
	b.reads.Add(1)
	other := b.live.Campaign
	other.ID, other.Name = "other", "<b>Other</b>"
	return model.Campaigns{Search: s, More: s.Page == 0, List: []model.Campaign{b.live.Campaign, other}}, b.err
}

func (b *fakeSource) Campaign(_ context.Context, id string) (*model.Live, error) {
	b.reads.Add(1)
	live := b.live
	switch id {
	case "rain":
	case "paused":
		live.CanPause, live.CanResume = false, true
	case "new":
		live.Status = "created"
	case "closed", "refunded":
		live.Status, live.Revealed = id, false
	default:
		return nil, fmt.Errorf("campaign %s: %w", id, model.ErrNotFound)
	}
	live.ID = id
	live.Granted += b.reads.Load()
	return &live, b.err
}

func (b *fakeSource) Sinks(context.Context) ([]deliveries.SinkStatus, error) {
	oldest := 2.5
	return []deliveries.SinkStatus{{Sink: "kafka", State: "working", Waiting: 12, Dead: 1, Oldest: &oldest,
		Workers: []deliveries.SinkWorker{{Worker: "w1", Alive: true}}}, {Sink: "balance", State: "no_worker"}}, nil
}

func (b *fakeSource) letter() model.Letter {
	return model.Letter{ID: "kafka/0/1-1", Sink: "kafka", Class: "permanent", Reason: "too <large>", Seq: 1,
		Fields: []string{"c", "1 rain"}, Grant: &hongbao.Grant{Campaign: "rain", Packet: 3, User: "u1", Amount: 185,
			Currency: "CNY"}}
}

func (b *fakeSource) Letters(context.Context, model.LetterFilter, string) ([]model.Letter, string, error) {
	return []model.Letter{b.letter()}, "kafka/0/1-1", nil
}

func (b *fakeSource) LetterGroups(context.Context, model.LetterFilter) (model.LetterGroups, error) {
	list := b.dead
	if list == nil {
		list = []model.Letter{b.letter()}
	}
	return model.LetterGroups{Groups: model.GroupLetters(list), Letters: int64(len(list)), More: b.moreDead}, b.err
}

func (b *fakeSource) Titles(_ context.Context, ids []string) map[string]model.Title {
	if slices.Contains(ids, "rain") {
		return map[string]model.Title{"rain": {Name: "Spring rain", Zone: "Asia/Shanghai"}}
	}
	return nil
}

func (b *fakeSource) Withheld(context.Context) ([]model.Withheld, error) { return b.held, b.heldErr }

func (b *fakeSource) Letter(_ context.Context, id string) (model.Letter, error) {
	if id != b.letter().ID {
		return model.Letter{}, model.ErrNotFound
	}
	return b.letter(), nil
}

func (b *fakeSource) quarantined() model.Quarantined {
	return model.Quarantined{ID: 7, Reason: "other_user", Grant: hongbao.Grant{Campaign: "rain", Packet: 3, User: "u1",
		Amount: 185, Currency: "CNY"}, Has: &hongbao.Grant{User: "u2", Amount: 185}}
}

func (b *fakeSource) Quarantine(context.Context, int64, bool) ([]model.Quarantined, error) {
	if b.inQuarantine != nil {
		return b.inQuarantine, nil
	}
	return []model.Quarantined{b.quarantined()}, nil
}

func (b *fakeSource) Quarantined(_ context.Context, id int64) (model.Quarantined, error) {
	if id != 7 {
		return model.Quarantined{}, model.ErrNotFound
	}
	return b.quarantined(), nil
}

func (b *fakeSource) Trail(context.Context, model.Question) (model.Trails, error) {
	return b.trails, nil
}

func (b *fakeSource) Replays(context.Context) ([]deliveries.ReplayState, error) {
	events := int64(10)
	return []deliveries.ReplayState{{Name: "again", Target: "kafka", Looked: 5, Events: &events}, {Name: "new", Target: "kafka"}}, nil
}

func (b *fakeSource) LoggedIn(ctx context.Context, a access.Action, why error) {
	b.logins = append(b.logins, fmt.Sprint(a, " ", access.AddressOf(ctx), " ", why))
}

func (b *fakeSource) Denied(context.Context, access.Action, string, error) { b.denied++ }

func (b *fakeSource) do(who *access.Caller, format string, args ...any) error {
	b.did = append(b.did, who.Key+" "+fmt.Sprintf(format, args...))
	return nil
}

func (b *fakeSource) CheckCampaign(_ context.Context, spec hongbao.Campaign) (campaigns.Check, error) {
	return campaigns.Check{Exists: spec.ID == "other", Funded: 34_000_000}, b.refuses
}

// doer implements the Operations of a caller and records the calls.
type doer struct {
	ops.Operations
	*fakeSource
	who *access.Caller
}

func (b *fakeSource) operations(who *access.Caller) Operations { return doer{fakeSource: b, who: who} }

func (d doer) FundCampaign(_ context.Context, in ops.CampaignCreate) (*campaigns.Created, error) {
	if d.refuses != nil {
		return nil, d.refuses
	}
	did := len(d.did)
	err := d.do(d.who, "create %s of %d", in.Spec.ID, in.Spec.Total)
	return &campaigns.Created{Created: !slices.Contains(d.did[:did], d.did[did])}, err
}

func (d doer) StoreCodes(_ context.Context, in ops.CampaignCreate) error {
	return d.do(d.who, "codes of %s", in.Spec.ID)
}

func (d doer) ShareCampaign(_ context.Context, in ops.Share) (string, access.Session, error) {
	return linkText + in.Campaign, access.Session{}, d.do(d.who, "share %s %v: %s", in.Campaign, in.Money, in.Why)
}

func (d doer) Links(_ context.Context, id string) ([]access.Session, error) {
	return []access.Session{{Hash: "0123456789abcdef", Key: "key-operator", Campaign: id, Why: "the <growth> team"}}, nil
}

func (d doer) EndLink(_ context.Context, campaign, id string) error {
	return d.do(d.who, "end link %s of %s", id, campaign)
}

func (d doer) LoadCampaign(_ context.Context, id string) (ops.Loaded, error) {
	return ops.Loaded{}, d.do(d.who, "load %s", id)
}

func (d doer) TopUpCampaign(_ context.Context, in ops.TopUp) (*model.TopUp, error) {
	return &model.TopUp{}, d.do(d.who, "top-up %s %s %d of %d to %d: %s", in.Campaign, in.ID, in.Packets, in.Total, in.Expect, in.Why)
}

func (d doer) StartReplay(_ context.Context, in ops.Replay) (*model.ReplayReport, error) {
	return &model.ReplayReport{Name: "again"}, d.do(d.who, "replay %s %s", in.Name, in.To)
}

func (d doer) PauseCampaign(_ context.Context, in ops.CampaignPause) (ops.CampaignState, error) {
	return ops.CampaignState{}, d.do(d.who, "campaign %s true: %s", in.Campaign, in.Why)
}

func (d doer) ResumeCampaign(_ context.Context, in ops.CampaignPause) (ops.CampaignState, error) {
	return ops.CampaignState{}, d.do(d.who, "campaign %s false", in.Campaign)
}

func (d doer) CampaignEnding(_ context.Context, id string) (*campaigns.Ending, error) {
	return &campaigns.Ending{Campaign: id, Currency: "CNY", Amount: 250, Missing: &d.missing, Settling: d.settling, Refunded: d.refunded,
		Next: "hongbao audit --campaign " + id}, nil
}

func (b *fakeSource) Undecided(context.Context, string) (int64, error) { return b.withheld, nil }

func (d doer) CancelCampaign(_ context.Context, id string) (*campaigns.Ending, error) {
	return nil, d.do(d.who, "cancel %s", id)
}

func (d doer) CloseCampaign(_ context.Context, in ops.CampaignClose) (*campaigns.Ending, error) {
	return nil, d.do(d.who, "close %s %v", in.Campaign, in.Early)
}

func (d doer) RefundCampaign(_ context.Context, in ops.CampaignRefund) (*campaigns.Ending, error) {
	return nil, d.do(d.who, "refund %s %d %d", in.Campaign, in.Amount, in.Missing)
}

func (d doer) RevealCampaign(_ context.Context, id string) (*campaign.Disclosure, error) {
	return nil, d.do(d.who, "reveal %s", id)
}

func (d doer) PauseSink(_ context.Context, in ops.SinkPause) (deliveries.SinkChange, error) {
	return deliveries.SinkChange{}, d.do(d.who, "sink %s true: %s", in.Sink, in.Why)
}

func (d doer) RequeueLetters(_ context.Context, in ops.Requeue) (*model.LetterReport, error) {
	d.after = in.After
	return &model.LetterReport{Decision: "requeued", DryRun: in.DryRun, Matched: 4, Next: optional.Text(d.next)},
		d.do(d.who, "requeue [%s] %s %v %s", in.Letter, in.Campaign, in.DryRun, in.Why)
}

func (d doer) DropLetters(_ context.Context, in ops.Letters) (*model.LetterReport, error) {
	return &model.LetterReport{Decision: "dropped", DryRun: in.DryRun, Matched: 4, Resolved: 1},
		d.do(d.who, "drop [%s] %s %v %s", in.Letter, in.Campaign, in.DryRun, in.Why)
}

func (d doer) DecideQuarantined(_ context.Context, in ops.Decide) (payments.Quarantined, error) {
	return payments.Quarantined{}, d.do(d.who, "decide %d %s %s", in.ID, in.Decision, in.Why)
}

// audited is when the audits of the tests begin. Redis keeps it in milliseconds.
var audited = time.Unix(1_800_000_000, 123_456_789)

func (d doer) Audit(context.Context, ops.Audit) (*model.AuditReport, error) {
	return &model.AuditReport{Verdict: model.Differs, Started: audited,
		Differences: []model.Difference{{Kind: audit.Lost, Campaign: "rain",
			Where: "ledger", Detail: "a <lost> grant"}}}, d.do(d.who, "audit")
}

// keys implements Authority. The text of a key is its role, or the role, a colon and the scope.
type keys struct {
	revoked, down atomic.Bool
	ended, kept   sync.Map // sessions
}

const sessionOf = "session-of-"

func (k *keys) StartSession(_ context.Context, key string, times access.SessionTimes) (string, error) {
	if times != (access.SessionTimes{Lasts: time.Hour, Idle: time.Minute}) {
		return "", errors.New("a session has the configured duration")
	}
	return sessionOf + key, nil
}

func (k *keys) Session(ctx context.Context, session string) (access.Caller, error) {
	return k.Identify(ctx, strings.TrimPrefix(session, sessionOf))
}

func (k *keys) Identify(_ context.Context, text string) (access.Caller, error) {
	if k.down.Load() {
		return access.Caller{}, hongbao.Outagef(hongbao.ClassTransient, "the ledger is down")
	}
	role, scope, scoped := strings.Cut(text, ":")
	for _, r := range access.Roles() {
		if string(r) == role && !k.revoked.Load() {
			who := access.Caller{Key: "key-" + role, Role: r, Expires: time.Date(2027, 2, 25, 9, 30, 0, 0, time.UTC)}
			if scoped {
				who.Campaigns = []string{scope}
			}
			return who, nil
		}
	}
	return access.Caller{}, access.ErrUnauthorized
}

// linkText begins the text of a link; the campaign follows, and "+money".
const linkText = "link-to-"

func (k *keys) Link(_ context.Context, text string) (access.Caller, error) {
	to, ok := strings.CutPrefix(text, linkText)
	if !ok || k.revoked.Load() {
		return access.Caller{}, access.ErrUnauthorized
	}
	id, money := strings.CutSuffix(to, "+money")
	return access.Caller{Key: "key-operator", Role: access.RoleViewer, Campaigns: []string{id}, Expires: time.Now().Add(time.Hour),
		Link: &access.Session{Hash: text, Campaign: id, Money: money, Expires: time.Now().Add(time.Hour)}}, nil
}

func (k *keys) KeepSession(_ context.Context, session string, times access.SessionTimes) error {
	if times != (access.SessionTimes{Lasts: time.Hour, Idle: time.Minute}) {
		return errors.New("a session has the configured duration")
	}
	k.kept.Store(session, true)
	return nil
}

func (k *keys) EndSession(_ context.Context, session string) error {
	k.ended.Store(session, true)
	return nil
}

// noLedger implements jobs.Rows while the ledger is down: a server knows only its own jobs.
type noLedger struct{}

var errNoLedger = hongbao.Outagef(hongbao.ClassTransient, "the ledger is down")

func (noLedger) BeginJob(context.Context, *model.Job) (*model.Job, error)   { return nil, errNoLedger }
func (noLedger) KeepJobs(context.Context, []model.Job) ([]model.Job, error) { return nil, errNoLedger }
func (noLedger) StopJob(context.Context, string, string) error              { return errNoLedger }
func (noLedger) Jobs(context.Context) ([]model.Job, error)                  { return nil, errNoLedger }
func (noLedger) Job(context.Context, string) (j model.Job, found bool, err error) {
	return j, false, nil
}
func (noLedger) LastJob(context.Context, string) (j model.Job, found bool, err error) {
	return j, false, errNoLedger
}

// starts starts a job, and returns the path of its page.
func (f *fixture) starts(t *testing.T, o *jobs.Order) (*jobs.Run, string) {
	t.Helper()
	run, err := f.jobs.Start(t.Context(), o)
	require.NoError(t, err)
	return run, "/jobs/" + run.Job().ID
}

// fixture is a Console over a fake Source and a fake Authority.
type fixture struct {
	*Console
	*fakeSource
	keys *keys
}

func setup(t *testing.T, change func(*configs.Console, *Deps)) *fixture {
	t.Helper()
	f := &fixture{fakeSource: &fakeSource{live: model.Live{Campaign: model.Campaign{ID: "rain", Name: "Spring rain", Currency: "CNY",
		Status: "open", CanPause: true, Packets: 1000, Dealt: 1000, Granted: 10, Left: 990, InRedis: true}}}, keys: &keys{}}
	f.trails.List = []model.Trail{{Packet: 3, User: "u1", Amount: "1.85 CNY",
		Stations: []model.StoreView{{Name: model.Say("Receipt in Redis"), Present: true, Text: model.Say("Finished.")},
			{Name: model.Say("Row of the ledger"), Text: model.Say("Not finished yet.")}}}}
	f.live.Spread = []model.Bin{{Low: 1, High: 5, Granted: 10, Plan: 4711}}
	cfg := configs.Console{Every: time.Second, Watchers: 3, SessionTime: time.Hour, IdleTime: time.Minute}
	deps := Deps{Source: f.fakeSource, Actions: f.fakeSource, Operations: f.fakeSource.operations, Authority: f.keys, Jobs: jobs.New(noLedger{}, "p1", zap.NewNop()), Log: zap.NewNop(), Deployment: "test"}
	if change != nil {
		change(&cfg, &deps)
	}
	var err error
	f.Console, err = New(cfg, deps)
	require.NoError(t, err)
	t.Cleanup(f.jobs.Close)
	return f
}

// ask sends a request with a session of the role. It sends GET if form is nil, else POST.
func (f *fixture) ask(t *testing.T, role, path string, form url.Values) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if form != nil {
		r = httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}
	if role != "" {
		r.AddCookie(&http.Cookie{Name: f.cookieName(f.tls), Value: sessionOf + role})
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}
