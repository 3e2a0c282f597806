package test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/dev/proxy"
	"github.com/hongbao-project/hongbao/internal/front/serve"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// byHand is a Redis whose address a person moves from one server to another. Replicas follow the first server through
// links that can be cut.
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

// cut keeps a replica from what the first server writes from now on.
func (h *byHand) cut(replica int) {
	h.links[replica-1].Refuse(true)
	h.links[replica-1].CutAll()
}

// promote makes a server the primary, and moves the address there.
func (h *byHand) promote(t *testing.T, i int) *testkit.RedisServer {
	t.Helper()
	h.servers[i].Order(t, "REPLICAOF NO ONE")
	h.front.Point(h.servers[i].Addr)
	return h.servers[i]
}

// follow makes a server the replica of another one, and waits until it has all.
func follow(t *testing.T, replica, primary *testkit.RedisServer) {
	t.Helper()
	host, port, _ := strings.Cut(primary.Addr, ":")
	replica.Order(t, "REPLICAOF "+host+" "+port)
	replica.Says(t, "INFO replication", "role:slave", "master_link_status:up")
}

// callers are the users of one process that grabs for them.
type callers struct {
	*people

	first int          // the number of the first user
	asked atomic.Int64 // how many users have asked
	kill  func()       // ends the process without a word
}

// callersAtOnce is how many users of one process ask at once.
const callersAtOnce = 16

// pour lets new users grab, so many a second at most, until ctx ends.
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

// some lets a few new users grab.
func (c *callers) some(ctx context.Context, n int) {
	from := c.first + int(c.asked.Add(int64(n))) - n
	c.grab(ctx, from, from+n, 8)
}

// webGrabber grabs at `hongbao serve`, with a token of each user.
type webGrabber struct{ url string }

const tokenSecret = "a secret of the rows of TestLosses, long enough"

// Grab is one request.
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

// losing is a deployment under a rain that loses writes, and what its users were told.
type losing struct {
	*site

	loss  *loss
	class hongbao.Durability
	dsn   string // of the ledger
	pg    *testkit.PostgresServer
	kafka *testkit.KafkaBroker

	id      string  // the campaign of the rain
	node    int     // of a cluster, that loses
	shards  []int   // that lose
	packets int     // of the campaign
	epochs  []int64 // of each shard, before

	workers []*testkit.Program
	idle    *callers // of a process that is idle when the loss comes
	busy    []*callers
	near    []*callers // on shards that lose nothing
	served  *callers   // one of busy, behind HTTP
	side    *proxy.Proxy
	halt    func()

	cutAt    int64     // grants of a primary when another one was promoted
	since    time.Time // from when on a server without some writes answers
	reported map[int][]stream.SeqRange
	result
}

// result is a line of the table.
type result struct {
	missing                                         int64 // grants, at least
	told, lost, twice, paidTwice, copies, seqsTwice int
	holes                                           int64
	frozen                                          time.Duration
	person                                          bool
	unreported                                      int // lost, and in no report
	lostOf                                          []string
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
	l.site = newSite(t, row.redis(t, class), env...)
	l.ok("init")
	l.choose()
	l.id = l.on(l.shards[0], "rain")
	more := oneEach
	if row.wide {
		more = fmt.Sprintf("shards: %d\n", row.shards) + oneEach
	}
	l.create(l.id, l.packets, class, more)
	for range 2 {
		l.hire()
	}
	l.callers()
	l.pours("the rain begins")
	return l
}

// own makes the ledger's server, and the broker of a row that stops it.
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

// choose names the shards that lose: all of the server's, on a cluster those of the node with the fewest.
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

// hire starts a worker.
func (l *losing) hire() *testkit.Program {
	l.t.Helper()
	p, _ := l.startWork()
	p.Says(startTime, `"message":"working"`)
	l.workers = append(l.workers, p)
	return p
}

// callers starts the processes that answer users, and their users.
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
		if i == 0 && l.loss.two { // it goes on with the old primary
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
		"--serve.ops_listen="+testkit.FreeAddr(l.t), "--serve.control_listen=127.0.0.1:0", "--serve.keys="+keys,
		"--serve.issuer=https://id.test", "--serve.audience=hongbao", "--serve.drain_delay=0s", "--serve.rate=1000000",
		"--serve.burst=1000000")
	cmd.Env = l.env
	p := testkit.StartProgram(l.t, cmd)
	p.Says(startTime, "serving grabs")
	return web, p.Kill
}

// granted counts the users of the campaign who have a packet.
func (l *losing) granted() (n int) {
	for _, c := range append(l.busy[:len(l.busy):len(l.busy)], l.idle) {
		have, _ := c.count()
		n += have
	}
	return n
}

// pours waits until each busy process has more grants.
func (l *losing) pours(what string) {
	l.t.Helper()
	for _, c := range l.busy {
		began, _ := c.count()
		more := lossRate
		if l.class == fsync { // a second or two for each answer
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

// grantedOn counts the users who have a packet of the rain on the shards that lose, by a server.
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

// ahead waits until a primary has grants that its replicas lack, some of them to users of the process that is idle from then on.
func (l *losing) ahead(primary *testkit.RedisServer) {
	l.t.Helper()
	began, more := l.grantedOn(primary), int64(2*lossRate)
	if l.class == hongbao.DurabilityReplica { // nobody is told of them
		more = callersAtOnce
	} else {
		l.idle.some(l.t.Context(), 20)
	}
	testkit.Eventually(l.t, startTime, func() bool { return l.grantedOn(primary) >= began+more }, "the primary is ahead")
}

// dies kills a primary, and returns how many grants it had at least.
func (l *losing) dies(primary *testkit.RedisServer) int64 {
	l.t.Helper()
	last := l.grantedOn(primary)
	require.NoError(l.t, primary.Kill())
	return last
}

// lacks counts what a server lacks that answers from now on: the fault has fired.
func (l *losing) lacks(last int64, server *testkit.RedisServer) {
	l.t.Helper()
	if l.since.IsZero() {
		l.since = time.Now()
	}
	missing := last - l.grantedOn(server)
	require.Positive(l.t, missing, "the fault fired")
	l.missing += missing
}

// isOpen reports whether a shard was opened since the loss.
func (l *losing) isOpen(shard int) bool {
	v, err := l.rdb.HMGet(l.t.Context(), l.store.Shard(shard).Keys.Meta(), "frozen", "epoch").Result()
	if err != nil || v[0] != nil || v[1] == nil {
		return false
	}
	var epoch int64
	_, err = fmt.Sscan(v[1].(string), &epoch)
	return err == nil && epoch > l.epochs[shard]
}

func (l *losing) allOpen() bool {
	return !slices.ContainsFunc(l.shards, func(i int) bool { return !l.isOpen(i) })
}

// opens waits until the shards are open again. If they do not open by themselves, a person does what the runbook says.
func (l *losing) opens() {
	l.t.Helper()
	limit := time.Now().Add(max(l.loss.patience, 25*time.Second))
	for !l.allOpen() && time.Now().Before(limit) {
		<-time.After(10 * time.Millisecond)
	}
	if !l.allOpen() {
		l.person = true
		l.decide()
	}
	l.frozen = time.Since(l.since)
}

// decide accepts the losses, and ends the campaigns that stay frozen.
func (l *losing) decide() {
	l.t.Helper()
	ended := map[string]bool{}
	for _, i := range l.shards {
		testkit.EventuallyOK(l.t, 3*startTime, func() error {
			if l.isOpen(i) {
				return nil
			}
			s := l.recovery().Shards[i]
			code, text := l.run("recover", "--accept-loss", "--shard", fmt.Sprint(i), "--expect", s.Digest, "--by", "ann",
				"--why", "a test")
			if code != 0 {
				return fmt.Errorf("%s", text)
			}
			l.holes += s.Unknown
			for _, u := range s.Unpaid {
				l.holes += u.Grants
			}
			l.reported[i] = append(l.reported[i], stream.SeqRange{First: max(s.Redis, 0) + 1, Last: s.Known()})
			for _, m := range regexp.MustCompile(`campaign (\S+) stays frozen`).FindAllStringSubmatch(text, -1) {
				ended[m[1]] = true
			}
			return nil
		}, "a person opens shard %d", i)
	}
	for id := range ended {
		if l.loss.wide {
			l.run("campaign", "close", id, "--early")
		}
		l.refundLost(id)
	}
}

// announceMissing sends to the topic what the ledger has paid and the topic lacks, as the audit says after an accepted loss.
func (l *losing) announceMissing() {
	l.t.Helper()
	if _, text := l.run("audit", "--wait", "40s"); strings.Contains(text, "missing_in_topic") {
		l.ok("replay", "missing", "--to", "kafka", "--missing")
	}
}

// recovery is what `hongbao recover` says.
func (l *losing) recovery() (r app.Recovery) {
	l.t.Helper()
	cmd := l.command("recover", "--json")
	_ = cmd.Run() // 3: something is lost
	out := fmt.Sprint(cmd.Stdout)
	require.NoError(l.t, json.NewDecoder(bytes.NewBufferString(out)).Decode(&r), "%s%s", out, cmd.Stderr)
	return r
}

// judge ends the rain, has every user ask once more by another process, and counts what became of what users were told.
func (l *losing) judge() {
	l.t.Helper()
	l.halt()
	ctx, cancel := context.WithTimeout(l.t.Context(), 90*time.Second)
	defer cancel()
	everybody, p := slices.Concat(l.busy, l.near, []*callers{l.idle}), l.producer()
	for _, c := range everybody {
		c.p = p
		c.grab(ctx, c.first, c.first+int(c.asked.Load()), 64)
		require.NoError(l.t, c.failed)
	}
	require.NoError(l.t, ctx.Err(), "everybody gets a final answer; the last other one: %s", l.busy[0].lastAnswer())
	if l.person {
		l.announceMissing()
	}
	l.nobodyLost()
	for _, w := range l.workers {
		if !w.Ended() {
			w.Signal(syscall.SIGTERM)
			require.Zero(l.t, w.Wait(time.Minute), w.Err.String())
		}
	}
	for _, r := range l.recovery().Restored {
		if r.Epoch > l.epochs[r.Shard] && r.Nobody > 0 {
			l.holes += r.Nobody
			l.reported[r.Shard] = append(l.reported[r.Shard], stream.SeqRange{First: r.First, Last: r.Last})
		}
	}
	l.count(everybody)
}

// grantKey is a packet of a user.
type grantKey struct {
	campaign, user string
	packet         int64
}

// eventKey is a number of an event.
type eventKey struct {
	shard int
	seq   int64
}

// count compares the users' own records with the ledger and the topic.
func (l *losing) count(everybody []*callers) {
	l.t.Helper()
	paid, owners := map[grantKey]bool{}, map[eventKey]map[grantKey]bool{}
	owns := func(at eventKey, g grantKey) {
		if owners[at] == nil {
			owners[at] = map[grantKey]bool{}
		}
		owners[at][g] = true
	}
	has := map[[2]string]int{}
	l.eachPaid(func(g grantKey, at eventKey) {
		paid[g] = true
		owns(at, g)
		if has[[2]string{g.campaign, g.user}]++; has[[2]string{g.campaign, g.user}] == 2 {
			l.paidTwice++
		}
	})
	for _, c := range everybody {
		for user, packets := range c.granted {
			if len(packets) > 1 {
				l.twice++
			}
			for packet, r := range packets {
				g := grantKey{c.campaign, user, packet}
				l.told++
				owns(eventKey{r.Shard, r.Seq}, g)
				if paid[g] {
					continue
				}
				l.lost++
				l.lostOf = append(l.lostOf, fmt.Sprintf("%s packet %d event %d-%d", user, packet, r.Shard, r.Seq))
				if !slices.ContainsFunc(l.reported[r.Shard], func(s stream.SeqRange) bool { return s.Has(r.Seq) }) {
					l.unreported++
				}
			}
		}
	}
	for _, all := range owners {
		if len(all) > 1 {
			l.seqsTwice++
		}
	}
	events, packets := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(l.ok("tail")) {
		var r app.Tailed
		require.NoError(l.t, json.Unmarshal([]byte(line), &r))
		packet := fmt.Sprint(r.Campaign, " ", r.Packet)
		if events[r.Event] || packets[packet] {
			l.copies++
		}
		events[r.Event], packets[packet] = true, true
	}
}

// eachPaid reads the grants of the ledger.
func (l *losing) eachPaid(fn func(g grantKey, at eventKey)) {
	l.t.Helper()
	conn, err := pgx.Connect(l.t.Context(), l.dsn)
	require.NoError(l.t, err)
	defer conn.Close(context.Background())
	rows, err := conn.Query(l.t.Context(), "SELECT campaign, user_id, packet, shard, seq FROM grants")
	require.NoError(l.t, err)
	var g grantKey
	var at eventKey
	_, err = pgx.ForEachRow(rows, []any{&g.campaign, &g.user, &g.packet, &at.shard, &at.seq}, func() error {
		fn(g, at)
		return nil
	})
	require.NoError(l.t, err)
}

// ask asks the ledger for a number.
func (l *losing) ask(query string) (n int64) {
	l.t.Helper()
	conn, err := pgx.Connect(l.t.Context(), l.dsn)
	require.NoError(l.t, err)
	defer conn.Close(context.Background())
	require.NoError(l.t, conn.QueryRow(l.t.Context(), query).Scan(&n))
	return n
}

// mends waits until a worker restores shard 0 on a server.
func (l *losing) mends(server *testkit.RedisServer) {
	l.t.Helper()
	client := server.Client(l.t)
	testkit.Eventually(l.t, startTime, func() bool {
		text, err := client.HGet(l.t.Context(), l.store.Shard(0).Keys.Meta(), "mend").Result()
		return err != redis.Nil && text != ""
	}, "a worker restores the shard")
}
