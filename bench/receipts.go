package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/store"
)

const (
	fewReceipts = 10_000
	costGrabs   = 10_000 // grabs in one measurement of the cost
	costCall    = 32     // grabs per call; for the classic script, scripts per pipeline
	costsARound = 3      // one measurement is not enough: the processor time of so few grabs is coarse
	// doublingWidth is how many receipts are added one by one before a power of two, and again after it.
	doublingWidth = 500
)

// sizes are the numbers of receipts at which a grab's cost is measured. Redis doubles a hash table at each power of
// two, and then moves the entries piece by piece in the following calls. At 1e6 and 1e7 Redis is moving them: these
// sizes are just after 2^20 and 2^23.
var sizes = []struct {
	name    string
	count   int
	doubles int // the power of two at which Redis begins to move the hash; 0 if Redis is not moving it
}{{"7e5", 700_000, 0}, {"1e6", 1<<20 + 2000, 1 << 20}, {"7.5e6", 7_500_000, 0}, {"1e7", 10_000_000, 1 << 23}}

// receiptsRow compares what a grab costs Redis in two campaigns of one Redis: one with many receipts, and one with few.
// It does the same for the classic script and its hash of users.
func receiptsRow(ctx context.Context, o options) ([]Result, error) {
	var costs [2]costs
	for i, begin := range []func(*fixture) side{
		func(r *fixture) side { return &ourSide{fixture: r} }, func(r *fixture) side { return &classicSide{fixture: r} },
	} {
		r, err := newFixture(ctx)
		if err != nil {
			return nil, err
		}
		// Redis does not move a hash while a child process rewrites the append-only file, so automatic rewrites are off.
		err = errors.Join(r.rdb.ConfigSet(ctx, "auto-aof-rewrite-percentage", "0").Err(),
			r.rdb.ConfigSet(ctx, "slowlog-log-slower-than", "20").Err())
		if err == nil {
			costs[i], err = r.costs(ctx, o, begin(r))
		}
		if err = errors.Join(err, r.close()); err != nil {
			return nil, err
		}
	}
	return receiptsResults(&costs[0], &costs[1]), nil
}

// side is Hongbao or the classic script, each with its own Redis.
type side interface {
	// begin empties Redis and makes room for a campaign without receipts.
	begin(ctx context.Context, packets int) error
	// fill adds receipts of users from..to-1 to a campaign.
	fill(ctx context.Context, campaign string, from, to int) error
	// few creates a campaign with fewReceipts receipts, and removes the previous one.
	few(ctx context.Context) error
	// grab grants costGrabs packets of a campaign to users who have no receipts there.
	grab(ctx context.Context, campaign string, from int) error
	// key returns the key of a campaign's receipts.
	key(campaign string) string
}

const (
	many = "many"
	few  = "few"
)

// costs are the costs of a grab for one side, in us of Redis' processor time, by the name of the size.
type costs struct {
	few, many map[string][]float64
	bytes     map[string]float64 // memory per receipt
	longest   map[string]float64 // the longest command that adds one receipt while Redis doubles the hash, in ms
	fork      map[string]float64 // how long a fork stops Redis, in ms
}

func (r *fixture) costs(ctx context.Context, o options, s side) (c costs, err error) {
	c = costs{map[string][]float64{}, map[string][]float64{}, map[string]float64{}, map[string]float64{},
		map[string]float64{}}
	if err := s.begin(ctx, len(sizes)*costsARound*o.rounds*costGrabs); err != nil {
		return c, err
	}
	has := 0
	for _, size := range sizes {
		if size.doubles > has {
			if c.longest[size.name], err = r.doubling(ctx, s, has, size.doubles); err != nil {
				return c, err
			}
			has = size.doubles + doublingWidth
		}
		to := int(float64(size.count) * o.scale)
		if err := s.fill(ctx, many, has, to); err != nil {
			return c, err
		}
		if has = max(has, to); size.doubles == 0 {
			if err := r.readOnce(ctx, s.key(many), min(has, 1_000_000)); err != nil {
				return c, err
			}
		}
		for range costsARound * o.rounds {
			ofFew, ofMany, err := r.both(ctx, s, has)
			if err != nil {
				return c, err
			}
			c.few[size.name], c.many[size.name] = append(c.few[size.name], ofFew), append(c.many[size.name], ofMany)
			has += costGrabs
		}
		if err := r.pauses(ctx, s.key(many), size.name, has, &c); err != nil {
			return c, err
		}
	}
	return c, nil
}

// both returns the cost of a grab in a new campaign with few receipts, and in the campaign with many receipts.
func (r *fixture) both(ctx context.Context, s side, has int) (ofFew, ofMany float64, err error) {
	if err = s.few(ctx); err == nil {
		ofFew, err = r.cost(ctx, s, few, fewReceipts)
	}
	if err == nil {
		ofMany, err = r.cost(ctx, s, many, has)
	}
	return ofFew, ofMany, err
}

// cost makes costGrabs grabs, and returns Redis' processor time per grab in us.
func (r *fixture) cost(ctx context.Context, s side, campaign string, from int) (float64, error) {
	before, err := r.cpu(ctx)
	if err == nil {
		err = s.grab(ctx, campaign, from)
	}
	after, err1 := r.cpu(ctx)
	return (after.process - before.process) / costGrabs, errors.Join(err, err1)
}

// doubling fills a hash up to doublingWidth fields before the number at which Redis doubles it. Then it adds fields one
// by one, up to doublingWidth fields after that number. It returns the time of the longest command in ms.
func (r *fixture) doubling(ctx context.Context, s side, from, at int) (longest float64, err error) {
	err = s.fill(ctx, many, from, at-doublingWidth)
	err = errors.Join(err, r.rdb.Do(ctx, "SLOWLOG", "RESET").Err())
	for u := at - doublingWidth; u < at+doublingWidth && err == nil; u++ {
		err = s.fill(ctx, many, u, u+1)
	}
	slow, err1 := r.rdb.SlowLogGet(ctx, 128).Result()
	for i := range slow {
		longest = max(longest, slow[i].Duration.Seconds()*1000)
	}
	return longest, errors.Join(err, err1)
}

// readOnce reads n receipts. Each read makes Redis move a piece of the hash, until the whole hash is moved.
func (r *fixture) readOnce(ctx context.Context, key string, n int) error {
	for i := 0; i < n; i += 5000 {
		users := make([]string, 0, 5000)
		for u := i; u < min(i+5000, n); u++ {
			users = append(users, user(u))
		}
		if err := r.rdb.HMGet(ctx, key, users...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// pauses records the memory per receipt, and how long a fork stops Redis.
func (r *fixture) pauses(ctx context.Context, key, size string, n int, c *costs) error {
	bytes, err := r.rdb.MemoryUsage(ctx, key, 1000).Result()
	c.bytes[size] = float64(bytes) / float64(n)
	if err := errors.Join(err, r.rdb.BgRewriteAOF(ctx).Err()); err != nil {
		return err
	}
	err = retry.Poll(ctx, 20*time.Millisecond, func() (done bool, err error) {
		info, err := r.info(ctx, "persistence")
		return info["aof_rewrite_in_progress"] == "0" && info["aof_rewrite_scheduled"] == "0", err
	})
	if err != nil {
		return err
	}
	info, err := r.info(ctx, "stats")
	if err != nil {
		return err
	}
	us, err := strconv.ParseFloat(info["latest_fork_usec"], 64)
	c.fork[size] = us / 1000
	return err
}

func receiptsResults(ours, classic *costs) (all []Result) {
	plot := Plot{Title: "A grab's cost when its campaign has receipts already", Unit: "us of Redis", Lines: []Line{
		{Name: "hongbao"}, {Name: "hongbao, a campaign with 1e4"}, {Name: "classic script"},
		{Name: "classic script with 1e4"}}}
	for _, size := range sizes {
		plot.X = append(plot.X, size.name)
		for i, v := range [][]float64{ours.many[size.name], ours.few[size.name], classic.many[size.name],
			classic.few[size.name]} {
			plot.Lines[i].Y = append(plot.Lines[i].Y, median(v))
		}
		res := Result{
			Name: "receipts_" + size.name, Unit: "us", Want: 1.15, Below: true,
			HowOurs: fmt.Sprintf("processor time of Redis (INFO cpu) for each of %d grabs, %d a call, in a campaign that has %s receipts "+
				"already (written by HSET in grab.lua's format), with a limit by user and AOF everysec", costGrabs, costCall,
				size.name),
			HowBaseline: fmt.Sprintf("the same in a campaign with %d receipts in the same Redis; the two campaigns take turns", fewReceipts),
			Beside: map[string]float64{
				"bytes for each receipt":                            ours.bytes[size.name],
				"classic, bytes for each user":                      classic.bytes[size.name],
				"classic, us of Redis":                              median(classic.many[size.name]),
				"classic with 1e4, us of Redis":                     median(classic.few[size.name]),
				"a fork for the file's rewrite stops Redis for, ms": ours.fork[size.name],
			},
		}
		if size.doubles > 0 {
			res.Beside["the longest HSET while the hash doubles, ms"] = ours.longest[size.name]
		}
		res.compare(ours.many[size.name], ours.few[size.name])
		if size.doubles > 0 { // Redis moves the hash, which makes any design slower
			res.Want, res.Unit = 1, "times the cost with 1e4"
			res.HowOurs += "; divided by the cost in a campaign with 1e4, while Redis moves the hash to a larger table"
			res.HowBaseline = "the same ratio for the classic script, whose hash of users Redis moves as well"
			res.compare(by(ours.many[size.name], ours.few[size.name]), by(classic.many[size.name], classic.few[size.name]))
		}
		all = append(all, res)
	}
	all[0].Plot = &plot
	return all
}

func by(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

// ourSide is a deployment of Hongbao.
type ourSide struct {
	*fixture
	store *store.Store
	calls map[string]*store.GrabCall
}

func (s *ourSide) key(campaign string) string { return s.store.Home(campaign).Keys.Receipts(campaign) }

func (s *ourSide) begin(ctx context.Context, packets int) (err error) {
	s.calls = map[string]*store.GrabCall{}
	if s.store, err = s.deployment(ctx, 1); err != nil {
		return err
	}
	return s.open(ctx, many, packets)
}

func (s *ourSide) open(ctx context.Context, campaign string, packets int) error {
	c := spec(campaign, packets)
	c.Limits = []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 1}}
	s.calls[campaign] = &store.GrabCall{MaxBacklog: 1e9}
	_, err := s.load(ctx, s.store, c)
	return err
}

func (s *ourSide) few(ctx context.Context) error {
	home := s.store.Home(few)
	if keys, err := s.rdb.Keys(ctx, home.Keys.Campaign(few)+"*").Result(); err != nil || len(keys) > 0 {
		if err = errors.Join(err, s.rdb.Del(ctx, keys...).Err()); err != nil {
			return err
		}
	}
	if err := s.open(ctx, few, costGrabs); err != nil {
		return err
	}
	return s.fill(ctx, few, 0, fewReceipts)
}

func (s *ourSide) fill(ctx context.Context, campaign string, from, to int) error {
	return s.putFields(ctx, s.key(campaign), from, to, func(u int) string {
		return fmt.Sprintf("%d %d %d %d r%05d", u+1, 100+u%801, u+1, 60_000+u%600_000, u%100_000)
	})
}

func (s *ourSide) grab(ctx context.Context, campaign string, from int) error {
	call, shard := s.calls[campaign], s.store.Home(campaign)
	var answers []hongbao.Answer
	for i := 0; i < costGrabs; i += costCall {
		call.Grabs = call.Grabs[:0]
		for u := i; u < min(i+costCall, costGrabs); u++ {
			call.Grabs = append(call.Grabs, &hongbao.Grab{User: user(from + u), RequestID: fmt.Sprintf("r%05d", u)})
		}
		var err error
		if answers, err = shard.Grab(ctx, call, answers); err != nil {
			return err
		}
		for k := range answers {
			if answers[k].Outcome != hongbao.OutcomeGranted {
				return fmt.Errorf("a grab in campaign %s got %s", campaign, answers[k].Outcome)
			}
		}
	}
	return nil
}

// putFields sets a field of the hash at key for each user in from..to-1.
func (r *fixture) putFields(ctx context.Context, key string, from, to int, value func(u int) string) error {
	for i := from; i < to; i += 5000 {
		fields := make([]any, 0, 10_000)
		for u := i; u < min(i+5000, to); u++ {
			fields = append(fields, user(u), value(u))
		}
		if err := r.rdb.HSet(ctx, key, fields...).Err(); err != nil {
			return fmt.Errorf("fill %s: %w", key, err)
		}
	}
	return nil
}

// classicSide is the classic script with its data.
type classicSide struct {
	*fixture
	sha string
}

func (*classicSide) key(campaign string) string { return "{" + campaign + "}map" }

func (s *classicSide) begin(ctx context.Context, packets int) (err error) {
	s.sha, err = s.classicStock(ctx, 1)
	return errors.Join(err, s.stock(ctx, many, packets))
}

func (s *classicSide) stock(ctx context.Context, campaign string, n int) error {
	return s.classicPackets(ctx, "{"+campaign+"}stock", n)
}

func (s *classicSide) few(ctx context.Context) error {
	err := s.rdb.Del(ctx, s.key(few), "{few}stock", "{few}consumed").Err()
	return errors.Join(err, s.stock(ctx, few, costGrabs), s.fill(ctx, few, 0, fewReceipts))
}

func (s *classicSide) fill(ctx context.Context, campaign string, from, to int) error {
	return s.putFields(ctx, s.key(campaign), from, to, user)
}

func (s *classicSide) grab(ctx context.Context, campaign string, from int) error {
	tag := "{" + campaign + "}"
	for i := 0; i < costGrabs; i += costCall {
		answers, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for u := i; u < min(i+costCall, costGrabs); u++ {
				p.EvalSha(ctx, s.sha, []string{tag + "stock", tag + "consumed", tag + "map", user(from + u)})
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, a := range answers {
			if !strings.Contains(a.String(), "userId") {
				return fmt.Errorf("the classic script answered %s in campaign %s", a, campaign)
			}
		}
	}
	return nil
}
