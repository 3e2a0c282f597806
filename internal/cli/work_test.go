package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	public "github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/producer"
)

// crowdOf lets the given number of users grab once each, and returns how many got a packet.
func (d *deployment) crowdOf(id string, from, users int) int {
	d.t.Helper()
	got, err := d.grabs(id, from, users)
	require.NoError(d.t, err)
	return got
}

// grabs does the work of crowdOf with 16 goroutines. It returns an error, so any goroutine may call it.
func (d *deployment) grabs(id string, from, users int) (int, error) {
	cfg := producer.DefaultConfig()
	cfg.Deployment = public.Of(d.store, zap.NewNop())
	p, err := producer.New(cfg)
	if err != nil {
		return 0, err
	}
	var wg sync.WaitGroup
	got, errs := make([]int, 16), make([]error, 16)
	for i := range got {
		wg.Go(func() {
			for u := from + i; u < from+users && errs[i] == nil; u += len(got) {
				var a hongbao.Answer
				a, errs[i] = p.Grab(d.t.Context(), &hongbao.Grab{Campaign: id, User: fmt.Sprintf("u%06d", u)})
				if a.Outcome == hongbao.OutcomeGranted {
					got[i]++
				} else if a.Outcome == hongbao.OutcomeFrozen && errs[i] == nil {
					u -= len(got) // frozen is undecided: the user retries
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range got {
		sum += n
	}
	return sum, errors.Join(errors.Join(errs...), p.Close(context.Background()))
}

// pending counts over all groups and shards: the entries that are delivered and not acked, the entries that are not
// delivered, and the groups.
func (d *deployment) pending() (pending, lag int64, groups int) {
	d.t.Helper()
	for i := range d.store.Len() {
		list, err := d.rdb.XInfoGroups(d.t.Context(), d.store.Shard(i).Keys.Events()).Result()
		if err != nil && strings.Contains(err.Error(), "no such key") {
			continue
		}
		require.NoError(d.t, err)
		for _, g := range list {
			pending, lag, groups = pending+g.Pending, lag+g.Lag, groups+1
		}
	}
	return pending, lag, groups
}

// quiet waits until every sink has its consumer group on each shard, and every event is finished.
func (d *deployment) quiet() {
	d.t.Helper()
	testkit.EventuallyOK(d.t, time.Minute, func() error {
		want := d.store.Len()
		if d.topic != "" {
			want *= 2
		}
		if pending, lag, groups := d.pending(); pending+lag > 0 || groups != want {
			return fmt.Errorf("%d pending, lag %d, %d of %d groups", pending, lag, groups, want)
		}
		for i := range d.store.Len() { // after a restart Redis does not know the lag
			at, err := d.store.Shard(i).TrimEvents(d.t.Context(),
				store.Trim{Retention: time.Hour, MaxEvents: 1e9, Limit: 1})
			if err != nil {
				return err
			}
			for _, g := range at.Groups {
				if g.Finished < at.Seq {
					return fmt.Errorf("group %s has finished %d of %d events of shard %d", g.Name, g.Finished, at.Seq, i)
				}
			}
		}
		return nil
	}, "nothing is in flight")
}

// audit runs `hongbao audit --json`, requires its exit code, and returns the report.
func (d *deployment) audit(code int) model.AuditReport {
	d.t.Helper()
	r := d.run("audit", "--json", "--wait", "20s")
	require.Equal(d.t, code, r.code, "%s%s", r.out, r.err)
	var report model.AuditReport
	require.NoError(d.t, json.Unmarshal([]byte(r.out), &report))
	require.Equal(d.t, code == 0, report.Verdict == model.Agrees)
	return report
}

// agrees runs an audit, and requires that every sink has this number of grants, each once.
func (d *deployment) agrees(grants int) model.AuditReport {
	d.t.Helper()
	r := d.audit(0)
	require.EqualValues(d.t, grants, r.Total.Granted)
	require.EqualValues(d.t, grants, r.Total.Settled)
	if d.topic != "" {
		require.EqualValues(d.t, grants, r.Total.Published)
		require.Zero(d.t, r.Total.Duplicates)
	}
	require.Zero(d.t, r.Total.DeadLetters+r.Total.Quarantined+r.Total.InFlight)
	return r
}

// stop sends a signal to a worker, and requires that it drains.
func (p *program) stop(s syscall.Signal) result {
	p.t.Helper()
	p.Signal(s)
	r := p.wait(30 * time.Second)
	require.Zero(p.t, r.code, r.err)
	require.Contains(p.t, r.err, `"drained"`)
	return r
}

// plant writes an entry to the stream, like an attacker with access to Redis. In fields, SEQ is replaced by a new seq.
func (d *deployment) plant(id string, fields ...string) int64 {
	d.t.Helper()
	return d.plantOn(d.store.Home(id).Shard, fields...)
}

// plantOn does the same on a given shard.
func (d *deployment) plantOn(k *store.Shard, fields ...string) int64 {
	d.t.Helper()
	seq, err := d.rdb.HIncrBy(d.t.Context(), k.Keys.Meta(), "seq", 1).Result()
	require.NoError(d.t, err)
	values := make([]any, len(fields))
	for i, f := range fields {
		values[i] = strings.Replace(f, " SEQ ", fmt.Sprintf(" %d ", seq), 1)
	}
	require.NoError(d.t, d.rdb.XAdd(d.t.Context(), &redis.XAddArgs{Stream: k.Keys.Events(), Values: values}).Err())
	return seq
}

// grantEntry returns the fields of an entry with one grant.
func grantEntry(id string, packet int64, amount, user string) []string {
	return []string{"3", fmt.Sprintf("grant %s SEQ 1 %d CNY\n%d %s %s - -", id, time.Now().UnixMilli(), packet, amount, user)}
}

// parked counts the entries that no worker owns, on the shard of the campaign. Any worker may take them at once.
func (d *deployment) parked(campaign string) (n int64) {
	d.t.Helper()
	for _, group := range []string{"balance", "kafka"} {
		list, err := d.rdb.XInfoConsumers(d.t.Context(), d.store.Home(campaign).Keys.Events(), group).Result()
		if redis.HasErrorPrefix(err, "NOGROUP") {
			continue // the worker stopped before it had created this group
		}
		require.NoError(d.t, err)
		for _, c := range list {
			if strings.HasPrefix(c.Name, "_retry/0") {
				n += c.Pending
			}
		}
	}
	return n
}

// A worker that gets a signal drains: it finishes the deliveries that it has begun, and returns its other entries.
func TestWorkDrains(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{shards: 2, postgres: s == syscall.SIGTERM, kafka: true, lease: 10 * time.Second})
			d.campaign("rain", 3000, 100_000)
			w := d.start("work")
			w.says(`"working"`)
			require.Equal(t, 3000, d.crowdOf("rain", 0, 3500))
			w.stop(s)
			pending, _, _ := d.pending()
			require.Equal(t, d.parked("rain"), pending,
				"the worker returned the entries that it had not begun, and finished the rest")
			w = d.start("work")
			w.says(`"working"`)
			d.quiet()
			w.stop(s)
			d.agrees(3000)
		})
	}
}

// A worker is stopped under load, several times. It never leaves an entry pending, and the next worker delivers the
// rest.
func TestWorkDrainsUnderLoad(t *testing.T) {
	t.Parallel()
	d := setup(t, options{shards: 2, kafka: true, lease: 10 * time.Second})
	d.campaign("rain", 30_000, 100_000)
	const stops, each = 6, 5_000
	for stop := range stops {
		w := d.start("work")
		w.says(`"working"`)
		before, err := d.rdb.HGet(t.Context(), d.store.Home("rain").Keys.Meta(), "seq").Int64()
		require.NoError(t, err)
		granted, failed := 0, error(nil)
		var crowd sync.WaitGroup
		crowd.Go(func() { granted, failed = d.grabs("rain", stop*each, each) })
		testkit.Eventually(t, 20*time.Second, func() bool {
			seq, err := d.rdb.HGet(t.Context(), d.store.Home("rain").Keys.Meta(), "seq").Int64()
			return err == nil && seq > before+500
		}, "grants pour in")
		w.stop(syscall.SIGTERM)
		pending, _, _ := d.pending()
		require.Equal(t, d.parked("rain"), pending,
			"the worker returned its entries, so another worker need not wait for the lease")
		crowd.Wait()
		require.NoError(t, failed)
		require.Equal(t, each, granted)
	}
	w := d.start("work")
	w.says(`"working"`)
	d.quiet()
	w.stop(syscall.SIGTERM)
	d.agrees(stops * each)
}

// Redis is killed while grants are delivered, and restarts with its append-only file. Deliveries continue. With
// everysec (F11), data that Redis has written survives the process even if it was not synced.
func TestWorkSurvivesTheDeathOfRedis(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	for _, appendfsync := range []string{"always", "everysec"} {
		t.Run(appendfsync, func(t *testing.T) {
			t.Parallel()
			server := testkit.NewRedis(t, testkit.RedisOptions{Args: map[string]string{"appendfsync": appendfsync}})
			// With everysec a claim that Redis has not written yet would be lost, and its batch would be published
			// twice. So Kafka is used only with appendfsync always.
			d := setup(t, options{redis: server, kafka: appendfsync == "always"})
			d.campaign("rain", 3000, 100_000)
			w := d.start("work")
			w.says(`"working"`)
			for round := range 3 {
				require.Equal(t, 1000, d.crowdOf("rain", 1000*round, 1000))
				if appendfsync == "everysec" { // Redis may delay a write by two seconds during a sync
					testkit.Eventually(t, 30*time.Second, func() bool {
						info, err := d.rdb.InfoMap(t.Context(), "persistence").Result()
						return err == nil && info["Persistence"]["aof_buffer_length"] == "0"
					}, "all is written")
				}
				require.NoError(t, server.Kill())
				d.refused(5, []string{"grab", "rain", "late"}, "can't be reached")
				d.refused(5, []string{"audit"}, "can't be reached")
				require.NoError(t, server.Restart())
			}
			d.quiet()
			w.stop(syscall.SIGTERM)
			d.agrees(3000)
		})
	}
}

// A worker that gets a signal while it starts ends without an error.
func TestWorkStopsWhileItStarts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	slow := testkit.NewProxy(t, testkit.Redis(t).Addr)
	d := setup(t, options{})
	slow.Delay(400 * time.Millisecond)
	d.set("REDIS_ADDRS", slow.Addr)
	w := d.start("work")
	testkit.Eventually(t, 30*time.Second, func() bool { return slow.Fired().Delayed > 0 }, "it asks Redis")
	w.Signal(syscall.SIGTERM)
	r := w.wait(20 * time.Second)
	require.Zero(t, r.code, r.err)
	require.NotContains(t, r.err, "working")
}

// One of two workers is killed with SIGKILL while it has pending entries. The other worker takes them over.
func TestWorkTakesOverFromTheDead(t *testing.T) {
	t.Parallel()
	server := needsPostgres(t)
	d := setup(t, options{server: server})
	d.campaign("rain", 2000, 100_000)
	dead := d.start("work")
	dead.says(`"working"`)
	require.NoError(t, server.Stop())
	require.Equal(t, 2000, d.crowdOf("rain", 0, 2000))
	testkit.Eventually(t, 20*time.Second, func() bool { p, _, _ := d.pending(); return p > 0 }, "it has pending entries")
	dead.Kill()
	require.NoError(t, server.Cont())
	p, _, _ := d.pending()
	require.Positive(t, p, "the fault fired")
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	require.Contains(t, w.Err.String(), "reclaimed entries whose time had come")
	d.agrees(2000)
}

func needsPostgres(t *testing.T) *testkit.PostgresServer {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server")
	}
	return testkit.NewPostgres(t, testkit.PostgresOptions{Settings: map[string]string{"fsync": "on",
		"full_page_writes": "on"}})
}

// The server of the ledger is killed while a worker runs, and restarts. No grant becomes a dead letter.
func TestWorkSurvivesTheLedgersDeath(t *testing.T) {
	t.Parallel()
	server := needsPostgres(t)
	d := setup(t, options{server: server})
	d.campaign("rain", 6000, 100_000)
	w := d.start("work")
	w.says(`"working"`)
	for round := range 3 {
		require.Equal(t, 1000, d.crowdOf("rain", 2000*round, 1000))
		require.NoError(t, server.Kill())
		require.Equal(t, 1000, d.crowdOf("rain", 2000*round+1000, 1000), "grabs continue while the ledger is down")
		testkit.Eventually(t, 20*time.Second, func() bool { p, _, _ := d.pending(); return p > 0 },
			"the worker keeps the grants that it can't settle")
		if round == 0 {
			w.says("sink is down")
		}
		require.NoError(t, server.Restart())
		d.quiet()
	}
	w.stop(syscall.SIGTERM)
	d.agrees(6000)
}

// The broker is killed while a worker runs, and restarts. The topic has each grant once.
func TestWorkSurvivesTheBrokersDeath(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	broker := testkit.NewKafka(t, testkit.KafkaOptions{})
	d := setup(t, options{kafka: true, broker: broker, shards: 2})
	d.campaign("rain", 4000, 100_000)
	w := d.start("work")
	w.says(`"working","sink":"kafka"`) // until then, the worker says that it can't reach the sink
	require.Equal(t, 2000, d.crowdOf("rain", 0, 2000))
	require.NoError(t, broker.Kill())
	require.Equal(t, 2000, d.crowdOf("rain", 2000, 2000))
	w.says("sink is down")
	require.NoError(t, broker.Restart())
	d.quiet()
	w.says("the sink works again")
	w.stop(syscall.SIGTERM)
	d.agrees(4000)
}
