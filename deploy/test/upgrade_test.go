package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/topic"
)

// upgrade is a deployment that two builds share.
type upgrade struct {
	t        *testing.T
	env      []string
	front    *balancer
	users    *crowd
	old, new *fleet
	rdb      *redis.Client
	broker   string
	topic    string
}

// Under load the processes of the previous release are replaced by those of the next one, then back, then forward again. The
// next one has the administration in a process of its own, as the chart does.
// The next release is this source with additions, see plants. In between both run side by side, and some are killed. Each
// user gets exactly one packet, ledger and topic have each grant once, each build reads the dead letters of the other, and
// the audits of both agree.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"postgres", "mysql"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			u := newUpgrade(t, driver)
			stop := u.load(4)
			u.old.start(u.env, u.front)
			u.old.works("before the upgrade")

			u.tooEarly()
			u.init(u.new)
			u.new.start(u.env, u.front)
			u.both("upgrade")
			u.administrate("hail", u.old, u.new)
			u.old.end(u.front, "kafka")
			u.new.works("the next release alone")
			u.additions()
			u.letters(u.new, u.old)

			u.init(u.old)
			u.old.start(u.env, u.front)
			u.both("way back")
			u.new.end(u.front, "serve", "balance", "control")
			u.old.works("the previous release alone, on the new schema")
			u.letters(u.old, u.new)

			u.init(u.new)
			u.new.start(u.env, u.front)
			u.both("upgrade again")
			u.administrate("snow", u.new, u.old)
			u.old.end(u.front, "serve", "kafka")
			u.new.works("the next release alone again")
			stop()
			u.check()
		})
	}
}

func newUpgrade(t *testing.T, driver string) *upgrade {
	t.Helper()
	before, err := previous()
	require.NoError(t, err)
	after, err := next()
	require.NoError(t, err)
	broker, server := testkit.Kafka(t), testkit.NewRedis(t, testkit.RedisOptions{})
	u := &upgrade{t: t, rdb: server.Client(t), broker: broker.Addr, topic: broker.Topic(t, 1, nil),
		front: newBalancer(t, &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1})}
	u.env = []string{"HONGBAO_REDIS_ADDRS=" + server.Addr,
		"HONGBAO_LEDGER_DRIVER=" + driver, "HONGBAO_LEDGER_DSN=" + newDatabase(t, driver),
		"HONGBAO_KAFKA_BROKERS=" + u.broker, "HONGBAO_KAFKA_TOPIC=" + u.topic,
		"HONGBAO_CONSUMER_LEASE=16s", "HONGBAO_PUBLISHER_MAX_CLAIM_AGE=15s"}
	u.old = &fleet{t: t, name: "the previous release", path: before.path, previous: true}
	u.new = &fleet{t: t, name: "the next release", path: after}
	u.init(u.old)
	u.by(u.old, "campaign", "create", campaignFile(t, 200_000))
	u.by(u.old, "campaign", "load", "rain")
	u.users = &crowd{url: "http://" + u.front.listener.Addr().String() + "/v1/campaigns/rain/grabs",
		granted: map[string]receipt{}, again: map[string]int{}}
	return u
}

// newDatabase returns the DSN of an empty database.
func newDatabase(t *testing.T, driver string) string {
	t.Helper()
	if driver == "mysql" {
		db := testkit.NewMariaDB(t, testkit.MariaDBOptions{Settings: map[string]string{"innodb_doublewrite": "on"}})
		name, err := db.CreateDatabase(t.Context())
		require.NoError(t, err)
		return db.DSN(name)
	}
	safe := map[string]string{"fsync": "on", "full_page_writes": "on"}
	db := testkit.NewPostgres(t, testkit.PostgresOptions{Settings: safe})
	name, err := db.CreateDatabase(t.Context())
	require.NoError(t, err)
	return db.DSN(name)
}

// by runs a command of the fleet's build.
func (u *upgrade) by(f *fleet, args ...string) string {
	u.t.Helper()
	out, err := tryBuild(u.t, f.path, u.env, args...)
	require.NoError(u.t, err, "%s", f.name)
	return out
}

// init runs `hongbao init` of the fleet's build. The first time it also creates an API key.
func (u *upgrade) init(f *fleet) {
	u.t.Helper()
	u.by(f, "init")
	if f.key != "" {
		return
	}
	var made struct{ Key string }
	require.NoError(u.t, json.Unmarshal([]byte(u.by(f, "key", "create", "--role=treasurer", "--json")), &made))
	f.key = filepath.Join(u.t.TempDir(), "key")
	require.NoError(u.t, os.WriteFile(f.key, []byte(made.Key), 0o600))
}

// tooEarly requires that a worker of the next release ends with an error before `hongbao init`, the wrong order.
func (u *upgrade) tooEarly() {
	u.t.Helper()
	_, err := tryBuild(u.t, u.new.path, u.env, "work", "--sink=balance")
	require.ErrorContains(u.t, err, "exit status 1")
	require.ErrorContains(u.t, err, "`hongbao init` brings it up to date")
}

// additions requires that the next release has written the fields that the previous one does not know.
func (u *upgrade) additions() {
	u.t.Helper()
	keys := firstShard(u.t, u.rdb)
	require.Equal(u.t, "x", u.rdb.HGet(u.t.Context(), keys.Meta(), "later").Val())
	last, err := u.rdb.XRevRangeN(u.t.Context(), keys.Events(), "+", "-", 1).Result()
	require.NoError(u.t, err)
	require.Equal(u.t, "x", last[0].Values["later"])
}

// letters requires that one build reads and ends the dead letters which the workers of the other one write. An entry that
// no build can read becomes a letter of each sink.
func (u *upgrade) letters(writer, reader *fleet) {
	u.t.Helper()
	keys := firstShard(u.t, u.rdb)
	id, err := u.rdb.XAdd(u.t.Context(), &redis.XAddArgs{Stream: keys.Events(), Values: []string{"poison", "1"}}).Result()
	require.NoError(u.t, err)
	var has struct{ Letters []struct{ ID, Reason string } }
	testkit.Eventually(u.t, timeToStart, func() bool {
		require.NoError(u.t, json.Unmarshal([]byte(u.by(reader, "dead", "list", "--json")), &has))
		return len(has.Letters) == 2
	}, "%s has written two letters", writer.name)
	for _, sink := range []string{"balance", "kafka"} {
		list, err := u.rdb.XRange(u.t.Context(), keys.Dead(sink), "-", "+").Result()
		require.NoError(u.t, err)
		require.Len(u.t, list, 1)
		require.Equal(u.t, writer == u.new, list[0].Values["later"] == "x")
	}
	for _, l := range has.Letters {
		require.Contains(u.t, l.Reason, "not a version")
		u.by(reader, "dead", "drop", l.ID, "--by=ann", "--why=test")
	}
	require.NoError(u.t, u.rdb.XDel(u.t.Context(), keys.Events(), id).Err()) // else the audits report it
}

// load starts users who grab, each on a new connection, so that all servers get grabs. The result stops them.
func (u *upgrade) load(callers int) (stop func()) {
	ctx, cancel := context.WithCancel(u.t.Context())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			pace := time.NewTicker(20 * time.Millisecond)
			defer pace.Stop()
			for n := 0; ctx.Err() == nil; n++ {
				if u.front.pick() != nil {
					u.users.grab(client, fmt.Sprintf("u%d-%d", i, n))
				}
				<-pace.C
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// both waits until both builds work side by side, and audits by both of them while grants are in flight.
func (u *upgrade) both(phase string) {
	u.t.Helper()
	for _, f := range []*fleet{u.old, u.new} {
		f.works(phase)
		u.audit(f)
	}
}

// audit returns the totals of an audit by the fleet's build, which must find no difference.
func (u *upgrade) audit(f *fleet, args ...string) (totals auditTotals) {
	u.t.Helper()
	out := u.by(f, append([]string{"audit", "--json"}, args...)...)
	var report struct {
		Verdict string
		Total   auditTotals
	}
	require.NoError(u.t, json.Unmarshal([]byte(out), &report), out)
	require.Equal(u.t, "agrees", report.Verdict, "%s: %s", f.name, out)
	return report.Total
}

type auditTotals struct {
	Granted, Settled, Published, Lost int64
	Doubles                           int64 `json:"double_credits"`
}

// administrate ends a campaign by turns: the commands of each build use the servers of the other build. Then each
// server accepts a session of the other server's console.
func (u *upgrade) administrate(id string, first, second *fleet) {
	u.t.Helper()
	text, err := os.ReadFile(campaignFile(u.t, 10))
	require.NoError(u.t, err)
	file := filepath.Join(u.t.TempDir(), id+".yaml")
	require.NoError(u.t, os.WriteFile(file, []byte(strings.Replace(string(text), "id: rain", "id: "+id, 1)), 0o600))
	f, other := first, second
	steps := [][]string{{"create", file}, {"load", id}, {"pause", id, "--why=test"}, {"resume", id, "--why=test"},
		{"close", id, "--early"}, {"refund", id, "--amount=1000", "--wait=60s"}, {"reveal", id}}
	for _, step := range steps {
		at := append([]string{"campaign", "--server=http://" + other.control, "--key-file=" + f.key}, step...)
		if why := slices.Contains(step, "--why=test"); why && !f.previous { // the previous release asks only for the reason
			at = append(at, "--by=test")
		}
		u.by(f, at...)
		f, other = other, f
	}
	for _, at := range []*fleet{first, second} {
		cookie := u.login(at)
		for _, f := range []*fleet{first, second} {
			require.Equal(u.t, http.StatusOK, u.page(f, cookie), "%s with a session of %s", f.name, at.name)
		}
	}
}

// browser returns redirects as they are.
var browser = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// login returns the cookie of a new session of the server's console.
func (u *upgrade) login(f *fleet) *http.Cookie {
	u.t.Helper()
	key, err := os.ReadFile(f.key)
	require.NoError(u.t, err)
	form := strings.NewReader("key=" + string(key))
	req, err := http.NewRequestWithContext(u.t.Context(), "POST", "http://"+f.control+"/login", form)
	require.NoError(u.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", "http://"+f.control)
	res, err := browser.Do(req)
	require.NoError(u.t, err)
	require.NoError(u.t, res.Body.Close())
	require.Len(u.t, res.Cookies(), 1, res.Status)
	return res.Cookies()[0]
}

// page returns the status of a page of the server's console.
func (u *upgrade) page(f *fleet, cookie *http.Cookie) int {
	u.t.Helper()
	req, err := http.NewRequestWithContext(u.t.Context(), "GET", "http://"+f.control+"/campaigns/rain", nil)
	require.NoError(u.t, err)
	req.AddCookie(cookie)
	res, err := browser.Do(req)
	require.NoError(u.t, err)
	require.NoError(u.t, res.Body.Close())
	return res.StatusCode
}

// check requires that Redis, ledger and topic have each user's packet exactly once.
func (u *upgrade) check() {
	u.t.Helper()
	require.Empty(u.t, u.users.failed)
	granted := int64(len(u.users.granted))
	for _, f := range []*fleet{u.new, u.old} {
		want := auditTotals{Granted: granted, Settled: granted, Published: granted}
		require.Equal(u.t, want, u.audit(f, "--wait=60s"), f.name)
	}
	packets, events := map[int64]string{}, map[string]string{}
	for user, r := range u.users.granted {
		packets[r.Packet], events[r.Event] = user, user
	}
	require.Len(u.t, packets, int(granted), "two users got the same packet")
	require.Len(u.t, events, int(granted), "two grants are the same event")
	require.Equal(u.t, packets, u.published())
	fmt.Printf("%s: %d grabs; sent again: %v\n", u.t.Name(), granted, u.users.again)
}

// published returns the users in the topic, by packet. No packet may be there twice.
func (u *upgrade) published() map[int64]string {
	u.t.Helper()
	conn, err := kafka.DialLeader(u.t.Context(), "tcp", u.broker, u.topic, 0)
	require.NoError(u.t, err)
	defer conn.Close()
	end, err := conn.ReadLastOffset()
	require.NoError(u.t, err)
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{u.broker}, Topic: u.topic, MaxWait: time.Second})
	defer reader.Close()
	users := map[int64]string{}
	for next := int64(0); next < end; {
		record, err := reader.ReadMessage(u.t.Context())
		require.NoError(u.t, err)
		next = record.Offset + 1
		e, err := topic.DecodeMessage(record.Headers, record.Key, record.Value)
		if errors.Is(err, topic.ErrForeign) {
			continue // a fence record
		}
		require.NoError(u.t, err)
		require.NotContains(u.t, users, e.Grant.Packet, "packet %d is in the topic twice", e.Grant.Packet)
		users[e.Grant.Packet] = e.Grant.User
	}
	return users
}
