package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
	"github.com/hongbao-project/hongbao/producer"
)

// classic is the red-packet script that many blog posts copy: no stream, no limits, one grab per call.
const classic = `if redis.call('hexists', KEYS[3], KEYS[4]) ~= 0 then return nil else
local hongBao = redis.call('rpop', KEYS[1]);
if hongBao then local x = cjson.decode(hongBao); x['userId'] = KEYS[4]; local re = cjson.encode(x);
redis.call('hset', KEYS[3], KEYS[4], KEYS[4]); redis.call('lpush', KEYS[2], re); return re; end end return nil`

// fleet is a number of pods, each with its own client, and the number of callers in each pod.
type fleet struct{ pods, callers int }

func (f fleet) String() string { return fmt.Sprintf("%dx%d", f.pods, f.callers) }

// The names of the three programs that a row compares.
const (
	ours    = "ours"
	goRedis = "classic script, go-redis"
	peer    = "classic script, rueidis"
)

// grabRow compares a fleet's grabs through package producer with the classic script. The baseline is the faster of two
// clients for the script, go-redis and rueidis. The parameter cpu, if not 0, is the goal for the ratio of Redis' processor
// time per grab to that of the classic script by the client that costs Redis less.
func grabRow(ctx context.Context, o options, f fleet, want, cpu float64) ([]Result, error) {
	r, err := newFixture(ctx)
	if err != nil {
		return nil, err
	}
	n := o.n(200_000)
	rate := Result{
		Name: "grab_" + f.String(), Unit: "grabs/s", Want: want, Beside: map[string]float64{},
		HowOurs: fmt.Sprintf("%d grabs by %d callers on each of %d clients through package producer, with a limit by user and a limit "+
			"by device and day. Redis writes the stream, with AOF everysec", n, f.callers, f.pods),
		HowBaseline: "the classic script (HEXISTS, RPOP, cjson, HSET, LPUSH) by EVALSHA, one grab per call, from as many " +
			"clients and callers on the same Redis. The client library is the faster of go-redis (at most 20 " +
			"connections per client) and rueidis (it pipelines concurrent calls, in a separate process)",
	}
	m := newMeter(r)
	for range o.rounds {
		if err = errors.Join(r.classicGrabs(ctx, f, n, m), r.peerGrabs(ctx, f, n, m), r.ourGrabs(ctx, f, n, m)); err != nil {
			break
		}
	}
	better := goRedis
	if median(m.rates[peer]) > median(m.rates[goRedis]) {
		better = peer
	}
	rate.compare(m.rates[ours], m.rates[better])
	for _, who := range []string{ours, goRedis, peer} {
		rate.Beside[who+", grabs/s"] = median(m.rates[who])
		rate.Beside[who+", us of Redis per grab (cpu)"] = median(m.process[who])
		rate.Beside[who+", us of Redis per grab (commandstats)"] = median(m.scripts[who])
		rate.Beside[who+", grabs per script call"] = median(m.size[who])
	}
	results := []Result{rate}
	if cpu > 0 {
		row := Result{
			Name: rate.Name + "_cpu", Unit: "us", Want: cpu, Below: true,
			HowOurs:     "processor time of Redis (INFO cpu) per grab, in the same runs as the row above",
			HowBaseline: "processor time of Redis per grab of the classic script, by the client that costs Redis less",
		}
		cheaper := goRedis
		if median(m.process[peer]) < median(m.process[goRedis]) {
			cheaper = peer
		}
		row.compare(m.process[ours], m.process[cheaper])
		results = append(results, row)
	}
	return results, errors.Join(err, r.close())
}

// meter collects the measurements of each program, one value per run.
type meter struct {
	r     *fixture
	rates map[string][]float64
	// The costs are microseconds of processor time per grab: process and scripts of Redis, own of this process. The field
	// size is grabs per script call.
	process, scripts, own, size map[string][]float64
}

func newMeter(r *fixture) *meter {
	return &meter{r, map[string][]float64{}, map[string][]float64{}, map[string][]float64{}, map[string][]float64{},
		map[string][]float64{}}
}

// measure runs n grabs. It records their rate and the processor time that they cost Redis and this process.
func (m *meter) measure(ctx context.Context, who string, n int, grabs func() (float64, error)) error {
	before, err := m.r.cpu(ctx)
	if err != nil {
		return err
	}
	var rate float64
	began, err1 := processTime()
	err = labelled(ctx, who, func(context.Context) (err error) {
		rate, err = grabs()
		return err
	})
	ended, err2 := processTime()
	if err = errors.Join(err, err1, err2); err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	after, err := m.r.cpu(ctx)
	m.own[who] = append(m.own[who], float64((ended-began).Microseconds())/float64(n))
	m.rates[who] = append(m.rates[who], rate)
	m.process[who] = append(m.process[who], (after.process-before.process)/float64(n))
	m.scripts[who] = append(m.scripts[who], (after.scripts-before.scripts)/float64(n))
	m.size[who] = append(m.size[who], float64(n)/(after.calls-before.calls))
	return err
}

// crowd makes n grabs with all callers of the fleet, and returns the rate.
func (f fleet) crowd(ctx context.Context, n int, grab func(pod, i int) error) (float64, error) {
	return crowd.Load{Callers: f.pods * f.callers, Calls: n}.Run(ctx, func(_ context.Context, caller, i int) error {
		return grab(caller%f.pods, i)
	})
}

// clients returns the clients of the fleet's pods, each with one open connection.
func (r *fixture) clients(ctx context.Context, f fleet, connections int) (clients []*redis.Client, end func() error, err error) {
	clients = make([]*redis.Client, f.pods)
	for i := range clients {
		opts := r.server.Options()
		opts.PoolSize = connections
		clients[i] = redis.NewClient(opts)
		err = errors.Join(err, clients[i].Ping(ctx).Err())
	}
	return clients, func() error {
		var errs []error
		for _, c := range clients {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	}, err
}

// classicStock empties Redis, pushes n packets, and loads the classic script.
func (r *fixture) classicStock(ctx context.Context, n int) (sha string, err error) {
	if err := r.rdb.FlushAll(ctx).Err(); err != nil {
		return "", fmt.Errorf("empty redis: %w", err)
	}
	if err := r.classicPackets(ctx, "{s}stock", n); err != nil {
		return "", err
	}
	return r.rdb.ScriptLoad(ctx, classic).Result()
}

// classicPackets pushes n packets to a list.
func (r *fixture) classicPackets(ctx context.Context, key string, n int) error {
	for i := 0; i < n; i += 5000 {
		var packets []any
		for j := i; j < min(i+5000, n); j++ {
			packets = append(packets, fmt.Sprintf(`{"id":%d,"money":%d}`, j+1, 100+j%801))
		}
		if err := r.rdb.RPush(ctx, key, packets...).Err(); err != nil {
			return fmt.Errorf("load the classic list: %w", err)
		}
	}
	return nil
}

func (r *fixture) classicGrabs(ctx context.Context, f fleet, n int, m *meter) error {
	sha, err := r.classicStock(ctx, n)
	if err != nil {
		return err
	}
	clients, end, err := r.clients(ctx, f, min(f.callers, 20))
	if err == nil {
		err = m.measure(ctx, goRedis, n, func() (float64, error) {
			return f.crowd(ctx, n, func(pod, i int) error {
				return clients[pod].EvalSha(ctx, sha, []string{"{s}stock", "{s}consumed", "{s}map", user(i)}).Err()
			})
		})
	}
	return errors.Join(err, end())
}

// peerGrabs measures the classic script by rueidis, in command peers.
func (r *fixture) peerGrabs(ctx context.Context, f fleet, n int, m *meter) error {
	sha, err := r.classicStock(ctx, n)
	if err != nil {
		return err
	}
	return m.measure(ctx, peer, n, func() (float64, error) {
		rate, _, err := runPeer(ctx, "-addr", r.server.Addr, "-sha", sha, "-pods", strconv.Itoa(f.pods), "-callers",
			strconv.Itoa(f.callers), "-n", strconv.Itoa(n))
		return rate, err
	})
}

// peers and hongbaoBin build their command at the first call.
var (
	peers      = sync.OnceValues(func() (string, error) { return built("peers", "bench/peers", ".") })
	hongbaoBin = sync.OnceValues(func() (string, error) { return built("hongbao", ".", "./cmd/hongbao") })
)

// built builds a command of the repository, and returns the path of the executable.
func built(name, dir, pkg string) (string, error) {
	bin, err := filepath.Abs(filepath.Join("bin", name))
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.Background(), "go", "build", "-C", dir, "-o", bin, pkg)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s, in the root of the repository: %w: %s", cmd, err, out)
	}
	return bin, nil
}

func (r *fixture) ourGrabs(ctx context.Context, f fleet, n int, m *meter) (err error) {
	st, err := r.deployment(ctx, 1)
	if err != nil {
		return err
	}
	if _, err := r.load(ctx, st, spec("bench", n+f.pods)); err != nil {
		return err
	}
	clients, end, err := r.clients(ctx, f, 16)
	producers := make([]*producer.Producer, 0, f.pods)
	defer func() {
		for _, p := range producers {
			err = errors.Join(err, p.Close(ctx))
		}
		err = errors.Join(err, end())
	}()
	once := func(pod, i int) error { return grab(ctx, producers[pod], deviceGrab(i), hongbao.OutcomeGranted) }
	for pod := range clients { // each producer has read the campaign before the clock starts
		if err != nil {
			return err
		}
		p, err1 := newProducer(clients[pod], st)
		if err1 != nil {
			return err1
		}
		producers = append(producers, p)
		err = once(pod, n+pod)
	}
	return m.measure(ctx, ours, n, func() (float64, error) { return f.crowd(ctx, n, once) })
}
