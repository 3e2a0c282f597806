package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/guard"
	"github.com/hongbao-project/hongbao/internal/model"
)

// loader is a function that reads the data of a page.
type loader func(ctx context.Context) (any, error)

// reading is the result of one read of a page's data.
type reading struct {
	data any
	err  error
	// rates are the points of the last minutes, for the chart.
	rates []rate
}

// rate is one point of the chart. It has grants in Redis, settled grants in the ledger and answers of all servers, each
// per second. A number is nil, and the line has a gap, where the reading or the one before it lacks it.
type rate struct {
	At                         time.Time
	Granted, Settled, Answered *float64
}

// poller reads the data of every watched page, once for all its viewers. It reads several pages at once, so that a page
// whose servers hang delays no other.
type poller struct {
	every time.Duration
	most  int // maximum of watchers
	log   *zap.Logger
	now   func() time.Time
	wake  chan struct{} // with a buffer for one wake-up
	slots chan struct{} // one for each read at a time
	reads sync.WaitGroup

	mu       sync.Mutex
	rooms    map[string]*room
	watchers int
	byKey    map[string]int // number of watchers of each key
	ended    bool
}

// room is a page that at least one viewer watches.
type room struct {
	load     loader
	watchers map[*watcher]bool
	last     *reading
	due      time.Time // of the next read
	isRead   bool      // a read goes on
	// before and rates are of a campaign. Only a read uses them.
	before *model.Sample
	rates  []rate
}

// watcher is one viewer of a page. The channel c has the newest reading that the viewer has not received yet. The
// poller closes c when it ends.
type watcher struct {
	c    chan *reading
	room string
	key  string
}

const (
	// loadTime is the time limit for one read. keptRates is the maximum number of points in the chart of rates: ten
	// minutes.
	loadTime  = 5 * time.Second
	keptRates = 600
	// restFactor spaces slow reads: if a read takes d, the next read of the page starts at least restFactor*d after the
	// start of this one. So watching never becomes the main load.
	restFactor = 4
	// readsAtOnce bounds the reads at one time. A campaign's page keeps several connections busy.
	readsAtOnce = 4
	// keyWatchers is the maximum number of pages that one API key may watch at once, in all its sessions.
	keyWatchers = 50
)

var (
	errTooMany = errors.New("too many pages are watched now; try again later")
	errKeyMany = fmt.Errorf("this key watches %d pages already: close some", keyWatchers)
	errEnding  = errors.New("this server is ending")
)

func newPoller(every time.Duration, most int, log *zap.Logger) *poller {
	return &poller{every: every, most: most, log: log, now: time.Now, wake: make(chan struct{}, 1),
		slots: make(chan struct{}, readsAtOnce), rooms: map[string]*room{},
		byKey: map[string]int{}}
}

// watch adds a viewer with an API key to a page.
func (p *poller) watch(page, key string, load loader) (*watcher, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ended:
		return nil, errEnding
	case p.watchers >= p.most:
		return nil, errTooMany
	case p.byKey[key] >= keyWatchers:
		return nil, errKeyMany
	}
	p.watchers++
	p.byKey[key]++
	r := p.rooms[page]
	if r == nil {
		r = &room{load: load, watchers: map[*watcher]bool{}}
		p.rooms[page] = r
	}
	w := &watcher{c: make(chan *reading, 1), room: page, key: key}
	r.watchers[w] = true
	if r.last != nil {
		w.c <- r.last
	}
	select {
	case p.wake <- struct{}{}:
	default: // a wake-up is already queued
	}
	return w, nil
}

// leave removes a viewer. The poller stops reading a page when its last viewer has left.
func (p *poller) leave(w *watcher) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.rooms[w.room]; r != nil && r.watchers[w] {
		p.watchers--
		if p.byKey[w.key]--; p.byKey[w.key] == 0 {
			delete(p.byKey, w.key)
		}
		if delete(r.watchers, w); len(r.watchers) == 0 {
			delete(p.rooms, w.room)
		}
	}
}

// run reads the watched pages until ctx ends. Then it ends all streams.
func (p *poller) run(ctx context.Context) {
	defer p.end()
	defer p.reads.Wait()
	for {
		for p.readDue(ctx) {
			wait := time.NewTimer(p.every)
			select {
			case <-wait.C:
			case <-p.wake:
				wait.Stop()
			case <-ctx.Done():
				wait.Stop()
				return
			}
		}
		select { // nobody watches a page
		case <-p.wake:
		case <-ctx.Done():
			return
		}
	}
}

// readDue begins to read each page that is due, and reports whether any pages are watched.
func (p *poller) readDue(ctx context.Context) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rooms {
		if r.isRead || p.now().Before(r.due) {
			continue
		}
		r.isRead = true
		p.reads.Go(func() {
			select {
			case p.slots <- struct{}{}:
				p.read(ctx, r)
				<-p.slots
			case <-ctx.Done():
			}
		})
	}
	return len(p.rooms) > 0
}

// read reads a page and sends it to its viewers.
func (p *poller) read(ctx context.Context, r *room) {
	start := p.now()
	asked, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	var data any
	err := guard.Call(p.log, func() (err error) {
		data, err = r.load(asked)
		return err
	})
	if ctx.Err() != nil {
		return
	}
	took := p.now().Sub(start)
	p.publish(r, data, err, start)
	p.mu.Lock()
	defer p.mu.Unlock()
	r.due, r.isRead = start.Add(max(p.every-p.every/10, restFactor*took)), false
}

// publish sends a reading to all viewers of a page. A slow viewer gets only the newest reading.
func (p *poller) publish(r *room, data any, err error, at time.Time) {
	switch w, ok := data.(*watched); {
	case ok && err == nil && r.before == nil: // the page was just opened
		r.open(w.Live, at)
	case ok && err == nil:
		r.note(w.Sample(at))
	case err != nil && r.before != nil: // of a campaign
		r.note(model.Sample{At: at})
	}
	now := &reading{data: data, err: err, rates: r.rates}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.last = now
	for w := range r.watchers {
		select {
		case <-w.c:
		default:
		}
		w.c <- now // the channel is empty, because only publish sends to it
	}
}

// open fills the chart of a campaign that was read for the first time.
func (r *room) open(live *model.Live, at time.Time) {
	r.note(append(slices.Clip(live.Samples), live.Sample(at))...)
}

// note adds points to the chart of a campaign.
func (r *room) note(samples ...model.Sample) {
	rates := slices.Clip(r.rates) // append copies: watchers still read the old slice
	for _, now := range samples {
		if r.before != nil && now.At.After(r.before.At) {
			seconds := now.At.Sub(r.before.At).Seconds()
			a := func(now, before *int64) *float64 {
				if now == nil || before == nil {
					return nil
				}
				return new(max(0, float64(*now-*before)) / seconds)
			}
			rates = append(rates, rate{now.At, a(now.Granted, r.before.Granted), a(now.Settled, r.before.Settled),
				a(now.Answered, r.before.Answered)})
		}
		r.before = &now
	}
	r.rates = rates[max(0, len(rates)-keptRates):]
}

// ratesOf returns the rates of a campaign that was read once.
func ratesOf(live *model.Live, at time.Time) []rate {
	r := room{}
	r.open(live, at)
	return r.rates
}

// end ends all streams and rejects new ones.
func (p *poller) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, r := range p.rooms {
		for w := range r.watchers {
			close(w.c)
		}
	}
	p.rooms = map[string]*room{}
}
