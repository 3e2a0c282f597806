package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/model"
)

// A line of an event ends at a carriage return, too: so no text begins a line of its own.
func TestEventsHaveNoLinesOfOthers(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	s := stream{w: w, control: http.NewResponseController(still{w})}
	require.NoError(t, s.send("live", "a\revent: ending\r\r\nb\nc"))
	require.Equal(t, "event: live\ndata: a\ndata: event: ending\ndata: \ndata: b\ndata: c\n\n", w.Body.String())
}

// still is a writer whose deadlines have no effect.
type still struct{ *httptest.ResponseRecorder }

// SetWriteDeadline is for http.ResponseController.
func (still) SetWriteDeadline(time.Time) error { return nil }

// tape records what the server sends to the browser in a stream.
type tape struct {
	mu     sync.Mutex
	text   bytes.Buffer
	header http.Header
	status int
}

func (r *tape) Header() http.Header { return r.header }
func (r *tape) WriteHeader(s int)   { r.status = s }
func (r *tape) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}
func (r *tape) Flush()                           {}
func (r *tape) SetReadDeadline(time.Time) error  { return nil }
func (r *tape) SetWriteDeadline(time.Time) error { return nil }

func (r *tape) count(event string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.text.String(), "event: "+event+"\n")
}

// watch opens a stream. The channel ended is closed when the server has ended the stream.
func (f *fixture) watch(ctx context.Context, page string) (r *tape, ended chan struct{}) {
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/events?page="+page, nil)
	request.Header.Set("Authorization", "Bearer viewer")
	return f.stream(request)
}

// stream is watch for any request.
func (f *fixture) stream(request *http.Request) (r *tape, ended chan struct{}) {
	r, ended = &tape{header: http.Header{}}, make(chan struct{})
	go func() {
		defer close(ended)
		f.ServeHTTP(r, request)
	}()
	return r, ended
}

// inBackground runs a function in a goroutine. stop cancels its context and waits for its end.
func inBackground(t *testing.T, run func(ctx context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		run(ctx)
	}()
	return func() {
		cancel()
		<-ran
	}
}

// A watched campaign keeps the session of its page from an hour before the window to its end. Nothing else that a page shows
// by itself does.
func TestWatchedRainKeepsTheSession(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		page   string
		status string
		opens  time.Duration // from now to the begin of the window, which is ten minutes long
		keeps  bool
	}{
		"a rain":         {"/campaigns/rain", "open", -time.Minute, true},
		"on a stage":     {"/campaigns/rain/rain", "open", -time.Minute, true},
		"unread":         {"/campaigns/rain", model.Unread, -time.Minute, true},
		"before it":      {"/campaigns/rain/rain", "not_started", 59 * time.Minute, true},
		"long before it": {"/campaigns/rain/rain", "not_started", 62 * time.Minute, false},
		"over":           {"/campaigns/rain", "ended", -11 * time.Minute, false},
		"not loaded":     {"/campaigns/rain", "created", -time.Minute, false},
		"closed":         {"/campaigns/rain", "closed", -time.Minute, false},
		"another page":   {"/sinks", "open", -time.Minute, false},
		"the list":       {"/", "open", -time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := setup(t, nil)
				stop := inBackground(t, func(ctx context.Context) { _ = f.Run(ctx) })
				defer stop()
				f.live.Status, f.live.From = c.status, time.Now().Add(c.opens)
				f.live.To = f.live.From.Add(10 * time.Minute)
				ctx, leave := context.WithCancel(t.Context())
				request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/events?page="+c.page, nil)
				request.AddCookie(&http.Cookie{Name: f.cookieName(false), Value: sessionOf + "viewer"})
				r, ended := f.stream(request)
				time.Sleep(2 * checkAgain) //nolint:forbidigo // the bubble's clock
				synctest.Wait()
				leave()
				<-ended
				require.Positive(t, r.count("still"))
				_, kept := f.keys.kept.Load(sessionOf + "viewer")
				require.Equal(t, c.keeps, kept)
			})
		})
	}
}

func TestOnePollerHoweverManyWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, nil)
		stop := inBackground(t, func(ctx context.Context) { _ = f.Run(ctx) })
		visiting, leave := context.WithCancel(t.Context())
		time.Sleep(time.Hour) //nolint:forbidigo // the bubble's clock
		require.Zero(t, f.reads.Load(), "without watchers nothing is read")
		var all []*tape
		var ends []chan struct{}
		for range 3 {
			r, ended := f.watch(visiting, "/campaigns/rain")
			all, ends = append(all, r), append(ends, ended)
			synctest.Wait()
		}
		time.Sleep(5500 * time.Millisecond) //nolint:forbidigo // the bubble's clock
		looks := f.reads.Load()
		require.InDelta(t, 6, looks, 1)
		for _, r := range all {
			require.InDelta(t, looks, r.count("live"), 1)
		}
		r, ended := f.watch(t.Context(), "/")
		<-ended
		require.Equal(t, http.StatusServiceUnavailable, r.status, "as many as Watchers")
		leave()
		for _, ended := range ends {
			<-ended
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // the bubble's clock
		looks = f.reads.Load()
		time.Sleep(time.Hour) //nolint:forbidigo // the bubble's clock
		require.Equal(t, looks, f.reads.Load(), "nobody watches any more")
		r, ended = f.watch(t.Context(), "/")
		synctest.Wait()
		require.Equal(t, 1, r.count("live"))
		stop() // the server drains
		<-ended
		require.Equal(t, 1, r.count("ending"))
		r, ended = f.watch(t.Context(), "/")
		<-ended
		require.Equal(t, http.StatusServiceUnavailable, r.status)
	})
}

func TestAuthorityIsCheckedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, nil)
		stop := inBackground(t, func(ctx context.Context) { _ = f.Run(ctx) })
		r, ended := f.watch(t.Context(), "/campaigns/rain")
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
		require.Zero(t, r.count("over"))
		f.keys.down.Store(true)
		time.Sleep(checkAgain) //nolint:forbidigo // the bubble's clock
		seen := r.count("live")
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
		require.Equal(t, seen, r.count("live"), "the server can't check the viewer's rights")
		require.Positive(t, r.count("trouble"))
		require.Zero(t, r.count("over"), "an outage ends no session")
		f.keys.down.Store(false)
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
		require.Greater(t, r.count("live"), seen)
		f.keys.revoked.Store(true)
		start := time.Now()
		<-ended
		require.LessOrEqual(t, time.Since(start), checkAgain)
		require.Equal(t, 1, r.count("over"))
		stop()
	})
}

// If reading a page is slow or fails, the browser still gets heartbeats, and learns which part of the page is old.
func TestAPageKnowsThatItIsOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t, nil)
		stop := inBackground(t, func(ctx context.Context) { _ = f.Run(ctx) })
		f.live.LedgerUnread = true
		r, ended := f.watch(t.Context(), "/campaigns/rain")
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
		require.Zero(t, r.count("live"), "a part of the page was not read")
		require.Greater(t, r.count("partial"), 50)
		require.InDelta(t, time.Minute/checkAgain, r.count("still"), 1)
		stop()
		<-ended
	})
}

// While the ledger, Redis or both do not answer, the chart has a gap: no fall to zero, and no rise afterwards. The lines of
// the other go on.
func TestAnOutageIsAGap(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	const line, gap = "01234", "0...4"
	some := &model.Answers{Total: 20_000}
	for name, c := range map[string]struct {
		part                       model.Live
		err                        error
		granted, settled, answered string
	}{
		"ledger": {model.Live{LedgerUnread: true, Campaign: model.Campaign{Granted: 10_000}, Answers: some}, nil, line, gap, line},
		"redis":  {model.Live{Settled: 10_000, Campaign: model.Campaign{Status: model.Unread}}, nil, gap, line, gap},
		"frozen": {model.Live{Settled: 10_000, Campaign: model.Campaign{Status: "frozen"}, Answers: some}, nil, gap, line, line},
		"both":   {model.Live{}, errors.New("away"), gap, gap, gap},
	} {
		p, r := newPoller(time.Second, 1, zap.NewNop()), &room{}
		whole := model.Live{Settled: 10_000, Campaign: model.Campaign{Granted: 10_000}, Answers: some}
		for i := range 6 {
			live, err := &whole, error(nil)
			if i == 2 || i == 3 {
				live, err = &c.part, c.err
			}
			p.publish(r, &watched{Live: live}, err, at.Add(time.Duration(i)*time.Second))
		}
		lines := [3]string{}
		for i, x := range r.rates {
			for n, value := range []*float64{x.Granted, x.Settled, x.Answered} {
				if value == nil {
					lines[n] += "."
					continue
				}
				require.Zero(t, *value, name)
				lines[n] += fmt.Sprint(i)
			}
		}
		require.Equal(t, [3]string{c.granted, c.settled, c.answered}, lines, name)
	}
}

// A page that is opened begins with the samples of the last ten minutes, their gaps included. Then its own readings
// follow.
func TestAPageBeginsWithTheSamples(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	live := model.Live{Settled: 10, Campaign: model.Campaign{Granted: 20}, Answers: &model.Answers{Total: 30}}
	for i := range 4 {
		s := model.Sample{At: at.Add(time.Duration(i-4) * time.Second), Settled: new(int64(6 + i)), Answered: new(int64(10 + 5*i))}
		if i != 1 {
			s.Granted = new(int64(16 + i))
		}
		live.Samples = append(live.Samples, s)
	}
	p, r := newPoller(time.Second, 1, zap.NewNop()), &room{}
	for i := range 2 {
		p.publish(r, &watched{Live: &live}, nil, at.Add(time.Duration(i)*time.Second))
	}
	var text string
	for _, x := range r.rates {
		text += fmt.Sprint(x.At.Sub(at), ":")
		for _, value := range []*float64{x.Granted, x.Settled, x.Answered} {
			if value == nil {
				text += " -"
				continue
			}
			text += fmt.Sprint(" ", *value)
		}
		text += "; "
	}
	require.Equal(t, "-3s: - 1 5; -2s: - 1 5; -1s: 1 1 5; 0s: 1 1 5; 1s: 0 0 0; ", text)
}

func TestASlowLookRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPoller(time.Second, 10, zap.NewNop())
		stop := inBackground(t, p.run)
		looks := 0
		w, err := p.watch("/", "k", func(context.Context) (any, error) {
			looks++
			time.Sleep(2 * time.Second) //nolint:forbidigo // the bubble's clock
			return nil, nil
		})
		require.NoError(t, err)
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
		p.leave(w)
		stop()
		require.InDelta(t, 60/8, looks, 2)
	})
}

// A page whose servers hang delays no other page.
func TestAHangingPageDelaysNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPoller(time.Second, 10, zap.NewNop())
		stop := inBackground(t, p.run)
		hung, looks := 0, 0
		for i := range readsAtOnce - 1 {
			_, err := p.watch(fmt.Sprint("/campaigns/hangs", i), "k", func(ctx context.Context) (any, error) {
				hung++
				<-ctx.Done()
				return nil, ctx.Err()
			})
			require.NoError(t, err)
		}
		_, err := p.watch("/campaigns/rain", "k", func(context.Context) (any, error) {
			looks++
			return nil, nil
		})
		require.NoError(t, err)
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
		stop()
		require.GreaterOrEqual(t, hung, 2*(readsAtOnce-1))
		require.InDelta(t, 60, looks, 2)
	})
}

// One API key can watch only a limited number of pages, so that others can watch, too.
func TestOneKeyWatchesSoManyPages(t *testing.T) {
	t.Parallel()
	p := newPoller(time.Second, keyWatchers+1, zap.NewNop())
	load := func(context.Context) (any, error) { return nil, nil }
	first, err := p.watch("/", "a", load)
	require.NoError(t, err)
	for range keyWatchers - 1 {
		_, err = p.watch("/", "a", load)
		require.NoError(t, err)
	}
	_, err = p.watch("/", "a", load)
	require.ErrorIs(t, err, errKeyMany)
	_, err = p.watch("/", "b", load)
	require.NoError(t, err)
	_, err = p.watch("/", "c", load)
	require.ErrorIs(t, err, errTooMany)
	p.leave(first)
	p.leave(first)
	_, err = p.watch("/", "a", load)
	require.NoError(t, err)
}
