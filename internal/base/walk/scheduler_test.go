package walk_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// run runs all tasks, one step at a time, and checks the data in Redis after each step.
func (w *world) run() error {
	defer func() {
		for _, t := range w.tasks {
			t.stop()
		}
	}()
	budget, topUps, losers := 10+w.rng.IntN(40), w.rng.IntN(4), 60
	for budget > 0 || len(w.tasks) > 0 {
		if losers > 0 && !w.left && len(w.tasks) < 3 { // many users arrive after the last packet is gone
			losers--
			g := &hongbao.Grab{Campaign: w.c.ID, User: fmt.Sprint("l", w.rng.IntN(20)), RequestID: fmt.Sprint("l", losers)}
			if len(w.requests) > 0 && w.rng.IntN(3) == 0 {
				g = w.requests[w.rng.IntN(len(w.requests))]
			}
			w.grab(w.producers[0], g)
		}
		if budget > 0 && (len(w.tasks) == 0 || w.rng.Float64() < 0.2) {
			budget--
			w.grab(w.producers[w.rng.IntN(len(w.producers))], w.someGrab())
		}
		often := map[bool]int{true: 1, false: 4}[w.left]
		if topUps > 0 && w.rng.IntN(100) < often && !w.rolled && !slices.ContainsFunc(w.tasks, topsUp) {
			topUps--
			w.topUp()
		}
		w.injectFault()
		w.now = w.now.Add(tick)
		ends := w.resumeOne()
		if err := w.check(); err != nil {
			return err
		}
		if !w.left {
			w.nothing = w.now
		}
		if ends != nil {
			if err := ends(); err != nil {
				return err
			}
		}
	}
	return nil
}

func topsUp(t *task) bool { return t.owner == nil }

// someGrab returns a new grab, or repeats an earlier one, which may still be running.
func (w *world) someGrab() *hongbao.Grab {
	if len(w.requests) > 0 && w.rng.IntN(3) == 0 {
		return w.requests[w.rng.IntN(len(w.requests))]
	}
	g := &hongbao.Grab{
		Campaign: w.c.ID, User: fmt.Sprint("u", w.rng.IntN(6)), RequestID: fmt.Sprint("r", len(w.requests)),
	}
	w.requests = append(w.requests, g)
	return g
}

// resumeOne resumes one random task. If the task ends, resumeOne returns the function that checks its result.
func (w *world) resumeOne() (ends func() error) {
	ready := slices.DeleteFunc(slices.Clone(w.tasks), func(t *task) bool { return t.stalls.After(w.now) })
	if len(ready) == 0 {
		return nil
	}
	t := ready[w.rng.IntN(len(ready))]
	if _, more := t.next(); more {
		return nil
	}
	w.tasks = slices.DeleteFunc(w.tasks, func(o *task) bool { return o == t })
	return t.ends
}

// injectFault sometimes injects a fault into a place, a task or a producer, or starts the next day.
func (w *world) injectFault() {
	ctx, r := context.Background(), w.rng
	place := w.places[r.IntN(len(w.places))]
	key := place.Keys.Campaign(w.c.ID)
	switch dice := r.Float64(); {
	case dice < 0.02:
		w.silent[r.IntN(len(w.silent))] = 1 + r.IntN(6)
	case dice < 0.06 && len(w.tasks) > 0:
		w.tasks[r.IntN(len(w.tasks))].stalls = w.now.Add(time.Duration(10+r.IntN(40)) * tick)
	case dice < 0.07:
		i := r.IntN(len(w.producers))
		for _, t := range w.tasks {
			if t.owner == w.producers[i] {
				t.stop()
			}
		}
		w.tasks = slices.DeleteFunc(w.tasks, func(t *task) bool { return t.owner == w.producers[i] })
		w.producers[i] = w.newAgent()
	case dice < 0.09:
		to := map[string]string{"open": "paused", "paused": "open"}[w.rdb.HGet(ctx, key, "state").Val()]
		if to == "open" || to == "paused" && r.IntN(5) == 0 {
			w.rdb.HSet(ctx, key, "state", to)
		}
	case dice < 0.093 && !w.calm && w.rdb.HGet(ctx, key, "state").Val() != "frozen":
		w.rdb.HSet(ctx, key, "state", "closed")
	case dice < 0.10 && !w.calm && !w.rolled && !slices.ContainsFunc(w.tasks, topsUp):
		w.rolled = w.rollBack(place.Shard)
	case dice < 0.12 && len(w.tasks) == 0:
		w.nextDay()
	}
}

// rollBack removes some grants from a place, as if Redis had lost its latest writes. Hongbao would detect the loss and
// freeze the place, so rollBack does that, too. With the planted bug, the place stays open.
func (w *world) rollBack(place *store.Shard) bool {
	ctx, id := context.Background(), w.c.ID
	receipts, stock := place.Keys.Receipts(id), place.Keys.Stock(id)
	held := w.rdb.HGetAll(ctx, receipts).Val()
	for _, user := range slices.Sorted(maps.Keys(held))[:min(1, len(held))] {
		w.rdb.HDel(ctx, receipts, user)
		for one := range strings.SplitSeq(held[user], "\n") {
			packet, _, _ := strings.Cut(one, " ")
			w.rdb.LPush(ctx, stock, packet+" 10")
		}
	}
	if w.bug != "a rollback that fills" {
		w.rdb.HSet(ctx, place.Keys.Campaign(id), "state", "frozen")
	}
	w.changed = true
	return true
}

// nextDay makes every receipt one day older. The caller ensures that no grab is running.
func (w *world) nextDay() {
	ctx := context.Background()
	for _, place := range w.places {
		key := place.Keys.Receipts(w.c.ID)
		for user, text := range w.rdb.HGetAll(ctx, key).Val() {
			lines := strings.Split(text, "\n")
			for i, line := range lines {
				var packet, amount, seq, ms int64
				var request string
				_, _ = fmt.Sscan(line, &packet, &amount, &seq, &ms, &request)
				lines[i] = fmt.Sprintf("%d %d %d %d %s", packet, amount, seq, max(0, ms-24*time.Hour.Milliseconds()), request)
			}
			w.rdb.HSet(ctx, key, user, strings.Join(lines, "\n"))
		}
	}
}

// check reads all data from Redis. Each packet must exist exactly once, no user may exceed a limit, and no request may
// have two packets.
func (w *world) check() error {
	if !w.changed {
		return nil
	}
	w.changed = false
	ctx, id := context.Background(), w.c.ID
	pipe := w.rdb.Pipeline()
	type cmds struct {
		fields *redis.SliceCmd
		stocks []*redis.StringSliceCmd
		held   *redis.MapStringStringCmd
	}
	var asked []cmds
	for _, place := range w.places {
		c := cmds{
			fields: pipe.HMGet(ctx, place.Keys.Campaign(id), "loaded", "state"),
			held:   pipe.HGetAll(ctx, place.Keys.Receipts(id)),
		}
		for g := range w.generation {
			c.stocks = append(c.stocks, pipe.LRange(ctx, place.Keys.StockOf(id, 1+g), 0, -1))
		}
		asked = append(asked, c)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return err
	}
	s := state{packets: map[string]string{}, count: map[string]int64{}, today: map[string]int64{},
		requests: map[string]bool{}}
	for _, c := range asked {
		fields := c.fields.Val()
		loaded, err := strconv.Atoi(fields[0].(string))
		if err != nil {
			return err
		}
		s.loaded += loaded
		for _, stock := range c.stocks {
			s.left = s.left || len(stock.Val()) > 0 && fields[1] != "frozen"
			for _, one := range stock.Val() {
				packet, _, _ := strings.Cut(one, " ")
				s.note(packet, "the stock")
			}
		}
		for user, text := range c.held.Val() {
			s.noteReceipts(w.c.From.UnixMilli(), user, text)
		}
	}
	w.left = s.left
	return s.judge(w)
}

// state is what check found in Redis.
type state struct {
	packets      map[string]string // the user or the stock that has each packet
	requests     map[string]bool
	count, today map[string]int64 // of each user
	loaded       int
	left         bool // some place could grant a packet
	errs         []error
}

func (s *state) note(packet, where string) {
	if s.packets[packet] != "" {
		s.errs = append(s.errs, fmt.Errorf("packet %s exists twice, in %s and with %s", packet, s.packets[packet], where))
	}
	s.packets[packet] = where
}

func (s *state) noteReceipts(from int64, user, text string) {
	receipts, err := store.ParseReceipts(0, from, text)
	s.errs = append(s.errs, err)
	for _, r := range receipts {
		s.note(fmt.Sprint(r.Packet), user)
		if at := user + " " + r.RequestID; s.requests[at] {
			s.errs = append(s.errs, fmt.Errorf("request %s has two packets", at))
		} else {
			s.requests[at] = true
		}
		if s.count[user]++; time.Since(r.Time) < 12*time.Hour {
			s.today[user]++
		}
	}
}

func (s *state) judge(w *world) error {
	for user, n := range s.count {
		if n > w.c.UserHold() || w.day > 0 && s.today[user] > w.day {
			s.errs = append(s.errs, fmt.Errorf("%s has %d packets, %d of today", user, n, s.today[user]))
		}
	}
	if w.bug != "an empty place filled" && len(s.packets) != s.loaded {
		s.errs = append(s.errs, fmt.Errorf("%d packets of %d are in Redis", len(s.packets), s.loaded))
	}
	return errors.Join(s.errs...)
}

// Walks run with the real scripts, under a scheduler that injects faults. Tasks stall, answers are lost, places do not
// answer, and producers restart. Campaigns are topped up; places are paused, closed and rolled back. Each packet must
// exist exactly once, and no user may exceed a limit. A repeated request must get its packet again, and sold_out must
// be true.
func TestModel(t *testing.T) {
	t.Parallel()
	o := modelOptions(t)
	known := 0
	for seed := range uint64(150) {
		w := newWorld(t, o, seed, "")
		require.NoError(t, w.run(), "seed %d", seed)
		known += w.known
	}
	t.Logf("%d users got sold_out without a call", known)
	require.Greater(t, known, 100, "users who got sold_out without a call")
}

// modelOptions starts a Redis for the test and returns its options.
func modelOptions(t *testing.T) *redis.Options {
	t.Helper()
	o := testkit.NewRedis(t, testkit.RedisOptions{}).Options()
	o.MaxRetries = -1
	return o
}

// Each planted bug makes at least one check of the model fail. The bugs are plausible mistakes in a walk, a producer or
// a top-up.
func TestModelCatches(t *testing.T) {
	t.Parallel()
	o := modelOptions(t)
	for _, bug := range []string{
		"a silent place", "packets on other places", "an empty place filled", "packets before the announcement",
		"a remembered place's receipts", "receipts before a refusal", "an ended lease", "a rollback that fills",
		"a filter before all is empty",
	} {
		t.Run(bug, func(t *testing.T) {
			for seed := range uint64(200) {
				if err := newWorld(t, o, seed, bug).run(); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("no check failed in 200 histories")
		})
	}
}
