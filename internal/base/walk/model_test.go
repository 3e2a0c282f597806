package walk_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/store/winners"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/internal/testkit/loaded"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// tick is the time between two steps of the scheduler.
const tick = walk.Lease / 12

// world is the model: one campaign on a real Redis with the real scripts, many users, and producers that run walks. The
// scheduler resumes one task at a time, which runs until its next call to Redis. The seed determines the order.
type world struct {
	rng    *rand.Rand
	rdb    *redis.Client
	bug    string
	c      hongbao.Campaign
	hash   string
	store  *store.Store
	places []store.Place
	day    int64 // limit per day; 0: none

	now        time.Time
	nothing    time.Time // when the model last saw that no packet is left
	changed    bool
	left       bool // some place could grant a packet
	generation int64
	silent     []int // for each place, how many more calls fail because it is down
	rolled     bool
	calm       bool // no place is closed or rolled back
	producers  []*agent
	tasks      []*task
	answered   map[string]int64 // packet of each granted request
	known      int              // number of grabs that got sold_out without a call to Redis
	requests   []*hongbao.Grab
}

// agent models the part of a producer that runs walks. A restart replaces it, so its memory is lost.
type agent struct {
	course *walk.Course
	memory *walk.Memory
	terms  []*store.LimitPeriods
	known  winners.SoldOutCache
	looks  bool // a task is fetching the filter
}

// task is a coroutine that calls Redis. It is suspended before its next call.
type task struct {
	next   func() (struct{}, bool)
	stop   func()
	owner  *agent // nil for a top-up, which belongs to no producer
	stalls time.Time
	ends   func() error // checks the result; nil until the task has ended
}

// errStopped ends a task whose producer was restarted.
var errStopped = errors.New("its producer was restarted")

type pauseKey struct{}

// faults is a hook between the scripts and Redis. It suspends the task before each call. A call may fail because its
// place is down, or lose its answer.
type faults struct{ *world }

func (f faults) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f faults) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f faults) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		pause, ok := ctx.Value(pauseKey{}).(func() bool)
		at, called := map[string]int{"evalsha": 3, "hget": 1}[cmd.Name()]
		line := slices.ContainsFunc(cmd.Args(), func(arg any) bool { // called under a lock: no other task may run
			text, is := arg.(string)
			return is && strings.HasSuffix(text, ":witnesses")
		})
		if !ok || !called || line {
			return next(ctx, cmd)
		}
		refuse := func(err error) error {
			cmd.SetErr(err)
			return err
		}
		if !pause() {
			return refuse(errStopped)
		}
		for j, k := range f.places {
			tag, _, _ := strings.Cut(k.Keys.Meta(), "}")
			if key := fmt.Sprint(cmd.Args()[at]); strings.HasPrefix(key, tag+"}") && f.silent[j] > 0 {
				f.silent[j]--
				return refuse(errDown)
			}
		}
		f.changed = true
		err := next(ctx, cmd)
		if f.rng.Float64() < 0.1 {
			return refuse(errors.New("the answer was lost"))
		}
		return err
	}
}

var errDown = errors.New("the place is down")

func newWorld(t *testing.T, o *redis.Options, seed uint64, bug string) *world {
	t.Helper()
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 1)), bug: bug, now: t0, generation: 1, answered: map[string]int64{},
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	w.rdb = rdb
	places := 2 + w.rng.IntN(3)
	w.store = storetest.InitializedOn(t, rdb, places)
	w.spec(places)
	seeds := campaign.NewSeed()
	_, err := loaded.Seeded(t.Context(), w.store, w.c, seeds)
	require.NoError(t, err)
	w.hash = campaign.Commit(w.c, seeds)
	w.places = w.store.Places(w.c.ID, places)
	w.left, w.silent, w.calm = true, make([]int, places), w.rng.IntN(2) == 0
	for range 2 {
		w.producers = append(w.producers, w.newAgent())
	}
	rdb.AddHook(faults{w})
	return w
}

// spec creates a random campaign that started ten days ago. In its time zone it is about noon, so the limit per day
// does not reset during the test.
func (w *world) spec(places int) {
	now := time.Now().Truncate(time.Millisecond)
	zone := fmt.Sprintf("Etc/GMT%+d", now.UTC().Hour()-12)
	packets := int64(1 + w.rng.IntN(10))
	c := loaded.Rain("rain", packets, hongbao.Amount(packets*10))
	c.From, c.TimeZone, c.Shards = now.Add(-240*time.Hour), zone, places
	c.Limits[0].Max = []int64{1, 1, 2, 3}[w.rng.IntN(4)]
	if w.rng.IntN(3) == 0 {
		w.day = int64(1 + w.rng.IntN(2))
		c.Limits[0].Max = 9
		c.Limits = append(c.Limits, hongbao.Limit{By: hongbao.ByUser, Per: hongbao.PerDay, Max: w.day})
	}
	w.c = c
}

func (w *world) newAgent() *agent {
	return &agent{
		course: walk.NewCourse(w.c.ID, len(w.places), w.c.UserHold()), memory: walk.NewMemory(len(w.places)),
		terms: make([]*store.LimitPeriods, len(w.places)),
	}
}

// start adds a task that runs run. In its context, each call to Redis waits until the scheduler resumes the task.
func (w *world) start(owner *agent, run func(ctx context.Context, pause func() bool) func() error) {
	t := &task{owner: owner}
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		pause := func() bool { return yield(struct{}{}) }
		t.ends = run(context.WithValue(context.Background(), pauseKey{}, pause), pause)
	})
	w.tasks = append(w.tasks, t)
}

// grab adds a task that runs one grab of a producer.
func (w *world) grab(a *agent, g *hongbao.Grab) {
	began, before := w.now, w.answered[g.User+" "+g.RequestID]
	w.start(a, func(ctx context.Context, _ func() bool) func() error {
		now := w.now
		if w.bug == "an ended lease" {
			now = time.Time{}
		}
		late := a.known.CertainlySoldOut(g.User, now)
		renew := late && a.known.Renew(now)
		if late && !renew {
			w.known++
			return func() error { return w.judge(g, &hongbao.Answer{Outcome: hongbao.OutcomeSoldOut}, began, before) }
		}
		var k walk.Walk
		k.Begin(a.course, g.User, g.RequestID)
		if renew {
			k.Renew()
		}
		for {
			answer, step, err := w.step(ctx, a, &k, g)
			switch {
			case errors.Is(err, errStopped):
				return nil
			case err == nil && step == walk.Answered:
				return func() error { return w.judge(g, &answer, began, before) }
			case err == nil && step == walk.Undecided && w.rng.IntN(20) == 0, err != nil && w.rng.IntN(20) == 0:
				return nil // the user gives up without a result
			}
		}
	})
}

// step makes the next call of the walk, as the producer does. w.bug may plant a bug in it.
func (w *world) step(ctx context.Context, a *agent, k *walk.Walk, g *hongbao.Grab) (hongbao.Answer, walk.NextStep,
	error) {
	asked := w.now
	if w.bug == "an ended lease" {
		asked = time.Time{}
	}
	ask := k.Ask(a.memory, asked)
	place := w.places[ask.Place]
	if ask.Receipts {
		if w.bug == "a remembered place's receipts" && ask.Generation > 0 {
			answer := hongbao.Answer{Time: w.now}
			return answer, k.Read(a.memory, w.now, &answer), nil
		}
		answers, err := place.Receipts(ctx, []*hongbao.Grab{g}, nil)
		if err != nil {
			return hongbao.Answer{}, walk.Undecided, err
		}
		now := w.now
		if w.bug == "an ended lease" {
			now = time.Time{}
		}
		step := k.Read(a.memory, now, &answers[0])
		return answers[0], step, nil
	}
	call := &store.GrabCall{
		MaxBacklog: 1e9, Terms: a.terms[ask.Place], Grabs: []*hongbao.Grab{g}, Generation: ask.Generation,
	}
	if held := k.PassedReceipts(); len(held) > 0 && w.bug != "packets on other places" {
		call.TimesElsewhere = [][]time.Time{held}
	}
	answers, err := place.Grab(ctx, call, nil)
	a.terms[ask.Place] = call.Terms
	if err != nil && w.bug == "a silent place" && errors.Is(err, errDown) {
		answers, err = []hongbao.Answer{{Outcome: hongbao.OutcomeSoldOut}}, nil
	} else if err != nil {
		return hongbao.Answer{}, walk.Undecided, err
	} else if answers[0].Outcome == hongbao.OutcomeSoldOut {
		a.memory.Emptied(ask.Place, ask.Generation, asked, call.Terms.Generation())
	}
	outcome := answers[0].Outcome
	step := k.Decided(a.memory, w.now, &answers[0])
	if err == nil {
		step = w.learn(a, g, step, outcome, call.Terms, asked)
	}
	if w.bug == "receipts before a refusal" && answers[0].Outcome != hongbao.OutcomeSoldOut && step == walk.Onward {
		step = walk.Answered
	}
	return answers[0], step, err
}

// judge returns an error if the answer is wrong. before is the packet that the request already had when this grab
// started; 0 if none.
func (w *world) judge(g *hongbao.Grab, a *hongbao.Answer, began time.Time, before int64) error {
	at := g.User + " " + g.RequestID
	packet := w.answered[at]
	switch {
	case a.Outcome == hongbao.OutcomeGranted && packet != 0 && packet != a.Receipts[0].Packet:
		return fmt.Errorf("%s got packet %d, and then packet %d", at, packet, a.Receipts[0].Packet)
	case a.Outcome == hongbao.OutcomeGranted:
		w.answered[at] = a.Receipts[0].Packet
	case before != 0:
		return fmt.Errorf("%s got packet %d, and then %s", at, before, a.Outcome)
	case a.Outcome == hongbao.OutcomeSoldOut && packet != 0:
		return fmt.Errorf("%s got packet %d meanwhile, and now sold_out", at, packet)
	case a.Outcome == hongbao.OutcomeSoldOut && w.nothing.Before(began):
		return fmt.Errorf("%s got sold_out while packets are left", at)
	}
	return nil
}
