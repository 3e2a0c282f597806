package console

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
)

const (
	// checkAgain is how often the server checks again whether a viewer may still see the page.
	checkAgain = 4 * time.Second
	// writeTime is the time limit for writing one event.
	writeTime = 10 * time.Second
)

// events streams the changes of the page in the query parameter page.
func (c *Console) events(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	if r.Method == http.MethodHead { // the mux routes HEAD like GET, but a stream has no end
		w.Header().Set("Allow", http.MethodGet)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	page := r.URL.Query().Get("page")
	view, ok := c.viewOf(r.Context(), page, who)
	if !ok {
		c.fail(w, r, http.StatusNotFound, model.Say("There is no such page to watch."))
		return
	}
	room := page
	if _, isList := parseSearch(page); isList { // callers with different scopes see different lists
		room += " " + strings.Join(who.Campaigns, ",")
	}
	watcher, err := c.poller.watch(room, watcherKey(who), view.load)
	if err != nil {
		w.Header().Set("Retry-After", "10")
		c.fail(w, r, http.StatusServiceUnavailable, model.Because(err, "This page can't be watched now."))
		return
	}
	defer c.poller.leave(watcher)
	out := stream{w: w, control: http.NewResponseController(w), tongue: c.tongueOf(r), short: who.Link != nil}
	if err := out.begin(); err != nil {
		c.log.Info("a stream of events could not begin", zap.Error(err))
		return
	}
	check := time.NewTicker(checkAgain)
	defer check.Stop()
	unsure := false
	var last *reading
	for err == nil {
		select {
		case now, open := <-watcher.c:
			if last = now; !open {
				_ = out.send("ending", "") // the page reconnects, and then reaches another server
				return
			}
			if !unsure {
				err = c.send(&out, &view, page, now, who)
			}
		case <-check.C:
			again, lost := c.callerOf(r.WithContext(access.For(r.Context(), access.ReadCampaigns)))
			if errors.Is(lost, access.ErrUnauthorized) || lost == nil && again.May(access.ReadCampaigns) != nil {
				_ = out.send("over", "")
				return
			}
			if unsure = lost != nil; unsure { // while the server can't check the viewer's rights, it sends no data
				err = out.trouble(c.explain(lost))
				continue
			}
			who = &again
			c.keepForRain(r, last)
			if view, ok = c.viewOf(r.Context(), page, who); !ok {
				return
			}
			err = out.send("still", "") // a heartbeat
		case <-r.Context().Done():
			return
		}
	}
}

// keptBefore is how long before a campaign's window its open page begins to keep the session.
const keptBefore = time.Hour

// keepForRain keeps the session of someone who watches a campaign that rains, or soon does: nobody touches the screen of a
// stage.
func (c *Console) keepForRain(r *http.Request, last *reading) {
	if last == nil {
		return
	}
	if w, ok := last.data.(*watched); ok {
		x := w.Campaign
		if x.From = x.From.Add(-keptBefore); x.Runs(time.Now()) {
			c.keepSession(r)
		}
	}
}

// watcherKey returns under which key a viewer counts. The readers of a link leave the owner of its key the pages that a key
// may watch.
func watcherKey(who *access.Caller) string {
	if who.Link != nil {
		return who.Link.Hash
	}
	return who.Key
}

// send sends the live part of a page.
func (c *Console) send(out *stream, v *view, path string, now *reading, who *access.Caller) error {
	if now.err != nil {
		return out.trouble(c.explain(now.err))
	}
	seen := v.filter(now, who)
	html, err := out.tongue.render(v.live, page{Caller: who, ReadOnly: c.cfg.ReadOnly, View: seen, Link: who.Link != nil})
	event := "live"
	if partial(seen) {
		event = "partial"
	}
	if err == nil {
		err = out.send(event, html)
	}
	if err == nil && who.Link == nil {
		err = c.sendFrame(out, path, who)
	}
	return err
}

// sendFrame sends the column of pages and the alarm, if they have changed.
func (c *Console) sendFrame(out *stream, path string, who *access.Caller) error {
	path, _, _ = strings.Cut(path, "?")
	html, err := out.tongue.render("frame", page{Path: path, Caller: who, ReadOnly: c.cfg.ReadOnly, Faults: c.faults != nil,
		Glance: c.glanceFor(who)})
	if err != nil || html == out.frame {
		return err
	}
	out.frame = html
	return out.send("frame", html)
}

// partial reports whether a part of a page's data could not be read. The page itself shows which part, and why.
func partial(data any) bool {
	unread := func(c model.Campaign) bool { return c.Status == model.Unread }
	switch x := data.(type) {
	case model.Campaigns:
		return x.Note != nil || slices.ContainsFunc(x.List, unread)
	case rainView:
		return partial(x.campaignView)
	case *campaignView:
		return x.LedgerUnread || x.Audit.Unread || unread(x.Campaign)
	case Work:
		return x.Unread
	case []sinkView:
		return slices.ContainsFunc(x, func(s sinkView) bool { return len(s.Unread) > 0 })
	}
	return false
}

// stream writes server-sent events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	tongue  *tongue
	frame   string // as it was sent last
	short   bool   // whether to leave out the texts of errors
}

// trouble sends why the page is not up to date.
func (s *stream) trouble(why model.Sentence) error {
	text, err := s.tongue.say(why)
	if err != nil {
		return err
	}
	if !s.short {
		text += " " + why.Original
	}
	return s.send("trouble", text)
}

func (s *stream) begin() error {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // for a proxy
	if err := s.control.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("remove the read deadline: %w", err)
	}
	s.w.WriteHeader(http.StatusOK)
	return s.write("retry: 2000\n\n")
}

// lineEnds replaces every end of a line that browsers accept in a stream of events.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

func (s *stream) send(event, data string) error {
	var b strings.Builder
	b.WriteString("event: " + event + "\n")
	for line := range strings.SplitSeq(lineEnds.Replace(data), "\n") {
		b.WriteString("data: " + line + "\n")
	}
	return s.write(b.String() + "\n")
}

func (s *stream) write(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return fmt.Errorf("set the write deadline: %w", err)
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return fmt.Errorf("write an event: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	return nil
}
