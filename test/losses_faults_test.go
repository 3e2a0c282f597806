package test

import (
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// byHand is a Redis with one address, which a person moves from the first server to another. The other servers
// replicate the first through links that a test can cut.
type byHand struct {
	servers []*testkit.RedisServer
	links   []*proxy.Proxy // of the replicas
	front   *proxy.Proxy
}

// redisByHand starts a primary and its replicas behind one address.
func redisByHand(t *testing.T, replicas int, opts testkit.RedisOptions) *redisAt {
	t.Helper()
	primary := testkit.NewRedis(t, opts)
	h := &byHand{servers: []*testkit.RedisServer{primary}, front: testkit.NewProxy(t, primary.Addr)}
	for range replicas {
		link := testkit.NewProxy(t, primary.Addr)
		opts.ReplicaOf = &testkit.RedisServer{Addr: link.Addr}
		replica := testkit.NewRedis(t, opts)
		replica.Says(t, "INFO replication", "master_link_status:up")
		h.servers, h.links = append(h.servers, replica), append(h.links, link)
	}
	return &redisAt{mode: configs.Standalone, primaries: h.servers[:1], hand: h,
		env: []string{"HONGBAO_REDIS_MODE=" + configs.Standalone, "HONGBAO_REDIS_ADDRS=" + h.front.Addr}}
}

// cut cuts the replication link of a replica.
func (h *byHand) cut(replica int) {
	h.links[replica-1].Refuse(true)
	h.links[replica-1].CutAll()
}

// promote makes a server the primary, and points the address to it.
func (h *byHand) promote(t *testing.T, i int) *testkit.RedisServer {
	t.Helper()
	h.servers[i].Order(t, "REPLICAOF NO ONE")
	h.front.SetTarget(h.servers[i].Addr)
	return h.servers[i]
}

// follow makes a server the replica of another one, and waits until it has all data.
func follow(t *testing.T, replica, primary *testkit.RedisServer) {
	t.Helper()
	host, port, _ := strings.Cut(primary.Addr, ":")
	replica.Order(t, "REPLICAOF "+host+" "+port)
	replica.Says(t, "INFO replication", "role:slave", "master_link_status:up")
}

// withReplicas returns a function that starts a Redis with n replicas, to be promoted by a person.
func withReplicas(n int) func(t *testing.T, _ hongbao.Durability) *redisAt {
	return func(t *testing.T, _ hongbao.Durability) *redisAt {
		return redisByHand(t, n, testkit.RedisOptions{Binary: lossProgram(t), Args: map[string]string{"appendfsync": "always",
			"slowlog-log-slower-than": "100", "slowlog-max-len": "1024"}})
	}
}

func bySentinel(t *testing.T, _ hongbao.Durability) *redisAt {
	return atRedis(t, configs.Sentinel, lossProgram(t))
}

func byCluster(t *testing.T, _ hongbao.Durability) *redisAt {
	return atRedis(t, configs.Cluster, lossProgram(t))
}

// withEverySec starts a Redis with appendfsync everysec and WAITAOF, which reports what is on the disk.
func withEverySec(t *testing.T, _ hongbao.Durability) *redisAt {
	programs, err := testkit.RedisPrograms(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, programs[1].Path, "run scripts/setup.sh servers")
	return redisByHand(t, 0, testkit.RedisOptions{Binary: programs[1].Path,
		Args: map[string]string{"appendfsync": "everysec", "aof-load-truncated": "yes"}})
}

// awaitMaster waits until one of the servers is a primary, and records that time in since.
func (l *losing) awaitMaster(servers ...*testkit.RedisServer) (promoted *testkit.RedisServer) {
	l.t.Helper()
	clients := map[*testkit.RedisServer]*redis.Client{}
	for _, s := range servers {
		clients[s] = s.Client(l.t)
	}
	testkit.Eventually(l.t, startTime, func() bool {
		for s, client := range clients {
			if text, err := client.Info(l.t.Context(), "replication").Result(); err == nil && strings.Contains(text, "role:master") {
				promoted = s
				return true
			}
		}
		return false
	}, "a replica is promoted")
	l.since = time.Now()
	return promoted
}

func promotedBySentinel(l *losing) {
	set := l.at.sentinels
	for _, r := range set.Replicas { // stop both: class replica waits for two replicas
		require.NoError(l.t, r.Stop())
	}
	for _, r := range set.Replicas {
		stall(l.t, set.Primary, r)
	}
	l.ahead(set.Primary)
	last := l.dies(set.Primary)
	for _, r := range set.Replicas {
		require.NoError(l.t, r.Cont())
	}
	l.lacks(last, l.awaitMaster(set.Replicas[:]...))
	set.AwaitPromotion(l.t)
}

func promotedByCluster(l *losing) {
	primary, other := l.at.cluster.Masters[l.node], l.at.cluster.Replicas[l.node]
	stall(l.t, primary, other)
	l.ahead(primary)
	last := l.dies(primary)
	require.NoError(l.t, other.Cont())
	l.lacks(last, l.awaitMaster(other))
	l.at.cluster.AwaitPromotion(l.t, l.node)
	for _, c := range l.near {
		began, _ := c.count()
		testkit.Eventually(l.t, startTime, func() bool { n, _ := c.count(); return n > began+20 }, "other shards continue")
	}
	require.NoError(l.t, primary.Restart()) // class replica needs a replica
}

func promotedByHand(l *losing) { byHandWhile(func(*losing) {})(l) }

// byHandWhile returns a fault that promotes a lagging replica by hand. It calls more just before the primary dies.
func byHandWhile(more func(l *losing)) func(l *losing) {
	return func(l *losing) {
		h := l.at.hand
		h.cut(1)
		l.ahead(h.servers[0])
		more(l)
		last := l.dies(h.servers[0])
		l.lacks(last, h.promote(l.t, 1))
		if l.class == replica { // it needs a replica
			require.NoError(l.t, h.servers[0].Restart())
			follow(l.t, h.servers[0], h.servers[1])
		}
	}
}

func flushed(l *losing) {
	server := l.at.hand.servers[0]
	l.ahead(server)
	l.missing, l.since = l.grantedOn(server), time.Now()
	server.Order(l.t, "FLUSHALL")
}

// twoPrimaries promotes a replica while one process still uses the old primary, which no other process can reach.
func twoPrimaries(l *losing) {
	cutOff(l)
	l.lasts(l.since, 4*time.Second, "two primaries")
	l.joins()
}

// cutOff promotes a replica, and leaves the old primary to one process.
func cutOff(l *losing) {
	h := l.at.hand
	h.cut(1)
	l.ahead(h.servers[0])
	l.cutAt = l.grantedOn(h.servers[0])
	l.lacks(l.cutAt, h.promote(l.t, 1))
}

// joins kills the old primary, which has granted packets since the promotion. Its process then uses the new primary.
func (l *losing) joins() {
	h := l.at.hand
	last := l.dies(h.servers[0])
	require.Greater(l.t, last, l.cutAt, "the fault fired: the old primary has granted more")
	l.side.SetTarget(h.servers[1].Addr)
}

// demotedAndPromoted demotes a primary and promotes it again. The server still has the run_id under which the shard was
// opened.
func demotedAndPromoted(l *losing) {
	h := l.at.hand
	h.cut(1)
	l.ahead(h.servers[0])
	last := l.grantedOn(h.servers[0])
	h.servers[1].Order(l.t, "REPLICAOF NO ONE")
	follow(l.t, h.servers[0], h.servers[1])
	h.servers[0].Order(l.t, "REPLICAOF NO ONE")
	l.lacks(last, h.servers[0])
}

func joinsLater(l *losing) {
	l.lasts(time.Now(), 3*time.Second, "two primaries")
	l.joins()
	if !l.person {
		l.pours("the rain continues")
	}
}

func killCallers(l *losing) {
	for _, c := range append(l.busy[:len(l.busy):len(l.busy)], l.idle) {
		c.kill()
	}
}

// newCallers starts a new process with new users.
func newCallers(l *losing) {
	c := &callers{people: l.people(l.producer(), l.id), first: 9_000_000}
	l.busy = append(l.busy, c)
	c.some(l.t.Context(), lossRate)
	if n, _ := c.count(); !l.person {
		require.Equal(l.t, lossRate, n)
	}
}

// stopWorker stops the first worker with SIGSTOP at an arbitrary time.
func stopWorker(l *losing) { l.workers[0].Signal(syscall.SIGSTOP) }

func resumeWorker(l *losing) {
	l.workers[0].Signal(syscall.SIGCONT)
	if !l.person {
		l.pours("the rain continues")
	}
}

// twoLosses returns a fault with two losses. The first promoted replica dies after while has returned. The second one
// lags more.
func twoLosses(while func(l *losing, first *testkit.RedisServer)) func(l *losing) {
	return func(l *losing) {
		h := l.at.hand
		h.cut(2)
		l.ahead(h.servers[0])
		h.cut(1)
		l.ahead(h.servers[0])
		last := l.dies(h.servers[0])
		first := h.promote(l.t, 1)
		l.lacks(last, first)
		while(l, first)
		last = l.dies(first)
		l.lacks(last, h.promote(l.t, 2))
	}
}

func later(l *losing, _ *testkit.RedisServer) {
	l.lasts(l.since, 3500*time.Millisecond, "the first failover")
}

// outage is how long the ledger or Kafka stays down after the loss.
const outage = 8 * time.Second

func down(ledger, kafka bool) func(l *losing) {
	return func(l *losing) {
		byHandWhile(func(l *losing) {
			if ledger {
				require.NoError(l.t, l.pg.Kill())
			}
			if kafka {
				require.NoError(l.t, l.kafka.Kill())
			}
		})(l)
		l.lasts(l.since, outage, "the outage")
		require.False(l.t, ledger && l.allOpen(), "no worker can restore the shard yet")
		if ledger {
			require.NoError(l.t, l.pg.Restart())
		}
		if kafka {
			require.NoError(l.t, l.kafka.Restart())
		}
	}
}

func topUp(l *losing) {
	l.ok("campaign", "top-up", l.id, "--packets", "600", "--total", "120000", "--expect", fmt.Sprint(200*lossPackets),
		"--id", "more", "--by", "ann", "--why", "a test")
	l.unknown(l.id, "dealt")
}

// dealtAgain waits until a worker has dealt the lost packets of the top-up again.
func dealtAgain(l *losing) {
	if !l.person {
		l.pours("the rain continues")
		testkit.Eventually(l.t, startTime, func() bool {
			return l.ask("SELECT count(*) FROM generation WHERE state = 'dealt'") == 1
		}, "the packets are dealt again")
	}
}

func closeEarly(l *losing) {
	l.ok("campaign", "close", l.id, "--early")
	l.unknown(l.id, "state")
}

func closeAgain(l *losing) {
	if !l.person {
		l.ok("campaign", "close", l.id, "--early")
	}
}

// unknown checks that a field of a campaign differs between primary and replica, so that the promotion loses its value.
func (l *losing) unknown(campaign, field string) {
	l.t.Helper()
	is := make([]string, 2)
	for i, server := range l.at.hand.servers {
		client := server.Client(l.t)
		is[i] = client.HGet(l.t.Context(), l.store.Home(campaign).Keys.Campaign(campaign), field).Val()
	}
	require.NotEmpty(l.t, is[0])
	require.NotEqual(l.t, is[0], is[1], "the replica has the same value")
}

// other returns the id of a second campaign on shard 0.
func (l *losing) other() string { return l.on(0, "other") }

func closeOther(l *losing) {
	l.create(l.other(), 10, l.class, oneEach)
	c := &callers{people: l.people(l.producer(), l.other()), first: 8_000_000}
	l.near = append(l.near, c)
	c.some(l.t.Context(), 5)
	l.ok("campaign", "close", l.other(), "--early")
}

func refundOther(l *losing) {
	_, text := l.run("campaign", "refund", l.other())
	amount := regexp.MustCompile(`--amount (\d+)`).FindStringSubmatch(text)
	require.NotNil(l.t, amount, text)
	l.says([]string{"campaign", "refund", l.other(), "--amount", amount[1], "--wait", "30s"}, "refunded")
	l.unknown(l.other(), "state")
}

// pause pauses the campaign, and waits until a worker has copied the pause to the ledger. The replica lacks the pause.
func pause(l *losing) {
	l.ok("campaign", "pause", l.id, "--by", "ann", "--why", "a test")
	testkit.Eventually(l.t, startTime, func() bool {
		return l.ask("SELECT count(*) FROM control WHERE campaign = '"+l.id+"'") > 0
	}, "the ledger has the pause")
	l.unknown(l.id, "state")
}

func resume(l *losing) {
	if !l.person {
		l.says([]string{"campaign", "show", l.id}, "paused")
		l.ok("campaign", "resume", l.id, "--by", "ann", "--why", "a test")
		l.pours("the rain continues")
	}
}

// full is a fault in which the new primary has no free memory, so it refuses most writes until the outage ends.
func full(l *losing) {
	to := l.at.hand.servers[1]
	byHandWhile(func(l *losing) {
		to.Order(l.t, "CONFIG SET maxmemory 1")
	})(l)
	require.ErrorContains(l.t, to.Client(l.t).Set(l.t.Context(), "x", "1", 0).Err(), "OOM", "the fault fired")
	l.lasts(l.since, outage, "the outage")
	to.Order(l.t, "CONFIG SET maxmemory 0")
}

// killRecoverer kills all workers while one of them restores the shard, and then starts a new one.
func killRecoverer(l *losing) {
	promotedByHand(l)
	l.restores(l.at.hand.servers[1])
	for _, w := range l.workers {
		w.Kill()
	}
	require.False(l.t, l.allOpen(), "the fault fired: the shard is not open")
	l.hire()
}
