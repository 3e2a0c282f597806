package test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/front/serve"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// callers are the users of one process.
type callers struct {
	*people

	first int          // number of the first user
	asked atomic.Int64 // how many users have grabbed so far
	kill  func()       // ends the process, which leaves its state in Redis
}

// callersAtOnce is how many users of a process grab concurrently.
const callersAtOnce = 16

// pour lets new users grab until ctx ends, at most rate users per second.
func (c *callers) pour(ctx context.Context, rate int) {
	var wg sync.WaitGroup
	for range callersAtOnce {
		wg.Go(func() {
			turn := time.NewTicker(callersAtOnce * time.Second / time.Duration(rate))
			defer turn.Stop()
			for ctx.Err() == nil {
				next := user(c.first + int(c.asked.Add(1)) - 1)
				for !c.once(ctx, next) && ctx.Err() == nil {
					<-turn.C
				}
				<-turn.C
			}
		})
	}
	wg.Wait()
}

// some lets n new users grab.
func (c *callers) some(ctx context.Context, n int) {
	from := c.first + int(c.asked.Add(int64(n))) - n
	c.grab(ctx, from, from+n, 8)
}

// webGrabber sends grabs to `hongbao serve`, with a token for each user.
type webGrabber struct{ url string }

const tokenSecret = "a secret of the rows of TestLosses, long enough"

// Grab sends one request.
func (h *webGrabber) Grab(ctx context.Context, g *hongbao.Grab) (a hongbao.Answer, err error) {
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": "https://id.test", "aud": "hongbao",
		"sub": g.User, "exp": time.Now().Add(time.Hour).Unix()})
	token.Header["kid"] = "k1"
	text, err := token.SignedString([]byte(tokenSecret))
	if err != nil {
		return a, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/v1/campaigns/"+g.Campaign+"/grabs",
		strings.NewReader(`{"request_id":"`+g.RequestID+`"}`))
	if err != nil {
		return a, err
	}
	req.Header.Set("Authorization", "Bearer "+text)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, hongbao.Outagef(hongbao.ClassUnknown, "ask hongbao serve: %w", err)
	}
	defer res.Body.Close()
	var got serve.GrabAnswer
	if err := json.NewDecoder(res.Body).Decode(&got); err != nil {
		return a, hongbao.Outagef(hongbao.ClassUnknown, "read an answer of hongbao serve: %w", err)
	}
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return a, hongbao.Outagef(hongbao.ClassTransient, "hongbao serve says %d", res.StatusCode)
	default:
		return a, hongbao.Errorf(hongbao.ClassBroken, "hongbao serve says %d", res.StatusCode)
	}
	a.Outcome = hongbao.Outcome(got.Outcome)
	for _, r := range got.Receipts {
		one := hongbao.Receipt{Packet: r.Packet, Amount: hongbao.Amount(r.Amount), RequestID: r.RequestID}
		if _, err := fmt.Sscanf(r.Event, "%d-%d", &one.Shard, &one.Seq); err != nil {
			return a, err
		}
		a.Receipts = append(a.Receipts, one)
	}
	return a, nil
}

// losing is a deployment whose Redis loses writes during a rain. It records what each user was told.
type losing struct {
	*site

	loss  *loss
	class hongbao.Durability
	dsn   string // of the ledger
	pg    *testkit.PostgresServer
	kafka *testkit.KafkaBroker

	id      string  // id of the campaign in which users grab
	node    int     // of a cluster: number of the node that loses writes
	shards  []int   // shards that lose writes
	packets int     // packets of campaign id
	epochs  []int64 // epoch of each shard before the loss

	workers []*testkit.Program
	idle    *callers // users of a process that is idle during the loss
	busy    []*callers
	near    []*callers   // users of campaigns on the other shards
	served  *callers     // the element of busy that uses `hongbao serve`
	side    *proxy.Proxy // between Redis and the first busy process, if that one has its own way
	halt    func()
	file    string   // a copy of Redis' files
	paused  []string // sinks

	busyBefore int // answers busy before the shards were open
	memoryOf   map[*testkit.Program]int64

	cutAt    int64     // grants on the old primary at the promotion
	since    time.Time // time of the first answer from a server that lacks writes
	reported map[int][]stream.SeqRange
	result
}

const (
	lossPackets = 40_000
	lossRate    = 300 // grabs a second of each busy process
	lossBusy    = 3   // processes beside serve
)

// newLosing starts a deployment for a row, and its rain.
func newLosing(t *testing.T, row *loss, class hongbao.Durability) *losing {
	t.Helper()
	l := &losing{loss: row, class: class, packets: lossPackets, reported: map[int][]stream.SeqRange{}}
	env := append([]string{fmt.Sprintf("HONGBAO_DEPLOYMENT_SHARDS=%d", max(row.shards, 1))}, l.own(t)...)
	env = append(env, row.env...)
	l.site = newSite(t, row.redis(t, class), env...)
	l.ok("init")
	l.choose()
	l.id = l.on(l.shards[0], "rain")
	more := oneEach
	if row.wide {
		more = fmt.Sprintf("shards: %d\n", row.shards) + oneEach
	}
	l.create(l.id, l.packets, class, more)
	if row.early != nil {
		row.early(l)
	}
	for range 2 {
		l.hire()
	}
	l.callers()
	l.pours("the rain begins")
	return l
}

// own starts a PostgreSQL for the ledger, and a Kafka broker if the row stops the broker.
func (l *losing) own(t *testing.T) []string {
	t.Helper()
	l.pg = newLedgerServer(t)
	name, err := l.pg.CreateDatabase(t.Context())
	require.NoError(t, err)
	l.dsn = l.pg.DSN(name)
	env := []string{"HONGBAO_LEDGER_DRIVER=postgres", "HONGBAO_LEDGER_DSN=" + l.dsn}
	if l.loss.stops {
		l.kafka = testkit.NewKafka(t, testkit.KafkaOptions{})
		topic := l.kafka.Topic(t, 2, map[string]string{"retention.ms": "-1", "unclean.leader.election.enable": "false"})
		env = append(env, "HONGBAO_KAFKA_BROKERS="+l.kafka.Addr, "HONGBAO_KAFKA_TOPIC="+topic)
	}
	return env
}

// choose selects the shards that lose writes: all shards of the server. On a cluster it selects the node with the
// fewest shards.
func (l *losing) choose() {
	n := l.store.Len()
	l.epochs = make([]int64, n)
	of := [3][]int{}
	for i := range n {
		l.epochs[i] = l.epochOf(i)
		node := 0
		if l.at.cluster != nil {
			node = slices.Index(l.at.cluster.Masters[:], l.primaryOf(i))
		}
		of[node] = append(of[node], i)
	}
	for i := range of {
		if len(of[i]) > 0 && (len(of[l.node]) == 0 || len(of[i]) < len(of[l.node])) {
			l.node = i
		}
	}
	l.shards = of[l.node]
}

// hire starts a worker and waits until it works.
func (l *losing) hire() *testkit.Program {
	l.t.Helper()
	p, _ := l.startWork()
	p.Says(startTime, `"message":"working"`)
	l.workers = append(l.workers, p)
	return p
}

// callers starts the processes that answer users, and lets users grab.
func (l *losing) callers() {
	l.t.Helper()
	raining, halt := context.WithCancel(l.t.Context())
	var wg sync.WaitGroup
	l.halt = func() {
		halt()
		wg.Wait()
	}
	l.t.Cleanup(l.halt)
	add := func(id string, p grabber, kill func()) *callers {
		n := 1 + len(l.busy) + len(l.near)
		c := &callers{people: l.people(p, id), first: n * 1_000_000}
		living, end := context.WithCancel(raining)
		c.kill = func() {
			end()
			kill()
		}
		if rate := lossRate; len(l.busy) < lossBusy+1 || id != l.id {
			if id != l.id {
				rate /= 5
			}
			wg.Go(func() { c.pour(living, rate) })
		}
		return c
	}
	for i := range lossBusy {
		gone := l.goneProducer
		if i == 0 && (l.loss.two || l.loss.aside) {
			l.side = testkit.NewProxy(l.t, l.at.hand.servers[0].Addr)
			aside := *l.cfg
			aside.Redis.Addrs = []string{l.side.Addr}
			gone = func() killed { return l.goneProducerOn(aside.RedisClient()) }
		}
		p := gone()
		l.busy = append(l.busy, add(l.id, p, p.kill))
	}
	web, kill := l.serves()
	l.served = add(l.id, web, kill)
	l.busy = append(l.busy, l.served)
	p := l.goneProducer()
	l.idle = add(l.id, p, p.kill)
	l.idle.first = 0
	l.idle.some(l.t.Context(), 20)
	if l.loss.shards > 1 && !l.loss.wide {
		near := l.producer()
		for i := range l.store.Len() {
			if !slices.Contains(l.shards, i) {
				id := l.on(i, "near")
				l.create(id, l.packets/4, l.class, oneEach)
				l.near = append(l.near, add(id, near, func() {}))
			}
		}
	}
}

// serves starts `hongbao serve`.
func (l *losing) serves() (web *webGrabber, kill func()) {
	l.t.Helper()
	web = &webGrabber{url: "http://" + testkit.FreeAddr(l.t)}
	keys := writeFile(l.t, "keys.json", fmt.Sprintf(`{"keys":[{"kty":"oct","kid":"k1","alg":"HS256","k":%q}]}`,
		base64.RawURLEncoding.EncodeToString([]byte(tokenSecret))))
	cmd := exec.Command(l.path, "serve", "--serve.listen="+strings.TrimPrefix(web.url, "http://"),
		"--serve.ops_listen="+testkit.FreeAddr(l.t), "--serve.keys="+keys,
		"--serve.issuer=https://id.test", "--serve.audience=hongbao", "--serve.drain_delay=0s", "--serve.rate=1000000",
		"--serve.burst=1000000")
	cmd.Env = l.env
	p := testkit.StartProgram(l.t, cmd)
	p.Says(startTime, "serving grabs")
	return web, p.Kill
}

// pours waits until each busy process has granted more packets.
func (l *losing) pours(what string) {
	l.t.Helper()
	for _, c := range l.busy {
		began, _ := c.count()
		more := lossRate
		if l.class == fsync { // each answer takes a second or two
			more = callersAtOnce
		}
		testkit.EventuallyOK(l.t, startTime, func() error {
			if n, _ := c.count(); n < began+more {
				return fmt.Errorf("%d granted, %d before, the last other answer: %s", n, began, c.lastAnswer())
			}
			return nil
		}, "%s", what)
	}
}

// grantedOn counts the receipts of the campaign on a server, on the shards that lose writes.
func (l *losing) grantedOn(server *testkit.RedisServer) (sum int64) {
	l.t.Helper()
	client := redis.NewClient(server.Options())
	defer client.Close()
	for _, i := range l.shards {
		n, err := client.HLen(l.t.Context(), l.store.Shard(i).Keys.Receipts(l.id)).Result()
		require.NoError(l.t, err)
		sum += n
	}
	return sum
}

// ahead waits until a primary has grants that its replicas lack. Some of them are of the idle process, which grabs
// nothing afterwards.
func (l *losing) ahead(primary *testkit.RedisServer) {
	l.t.Helper()
	if l.class == replica {
		l.untold(primary)
		return
	}
	began := l.grantedOn(primary)
	l.idle.some(l.t.Context(), 20)
	testkit.Eventually(l.t, startTime, func() bool { return l.grantedOn(primary) >= began+2*lossRate }, "the primary is ahead")
}

// untold lets a primary grant packets that no replica gets, so no user is told of them.
func (l *losing) untold(primary *testkit.RedisServer) {
	l.t.Helper()
	const users = 20
	began, from := l.grantedOn(primary), l.idle.first+int(l.idle.asked.Add(users))-users
	var answered atomic.Int64
	var wg sync.WaitGroup
	for i := range users {
		wg.Go(func() {
			if l.idle.once(l.t.Context(), user(from+i)) {
				answered.Add(1)
			}
		})
	}
	wg.Wait()
	require.Zero(l.t, answered.Load(), "class replica reports no packet to a user before a replica has it")
	require.GreaterOrEqual(l.t, l.grantedOn(primary), began+users, "the primary is ahead")
}

// lasts waits until the duration d has passed since a time.
func (l *losing) lasts(since time.Time, d time.Duration, what string) {
	l.t.Helper()
	testkit.Eventually(l.t, d+startTime, func() bool { return time.Since(since) > d }, "%s", what)
}

// dies kills a primary, and returns a lower bound of its grants.
func (l *losing) dies(primary *testkit.RedisServer) int64 {
	l.t.Helper()
	last := l.grantedOn(primary)
	require.NoError(l.t, primary.Kill())
	return last
}

// lacks adds the grants that a promoted or restarted server lacks to missing. It requires that there are some.
func (l *losing) lacks(last int64, server *testkit.RedisServer) {
	l.t.Helper()
	if l.since.IsZero() {
		l.since = time.Now()
	}
	missing := last - l.grantedOn(server)
	require.Positive(l.t, missing, "the fault fired")
	l.missing += missing
}

// restores waits until a worker has begun to restore shard 0 on a server.
func (l *losing) restores(server *testkit.RedisServer) {
	l.t.Helper()
	client := server.Client(l.t)
	testkit.Eventually(l.t, startTime, func() bool {
		text, err := client.HGet(l.t.Context(), l.store.Shard(0).Keys.Meta(), "mend").Result()
		return err != redis.Nil && text != ""
	}, "a worker restores the shard")
}
