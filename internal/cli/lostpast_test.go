package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/operate/recovery"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/topic"
)

// past is a deployment under load whose Redis will lose acknowledged writes.
type past struct {
	*deployment
	server  *testkit.RedisServer
	users   *audience
	workers []*program
	reader  *reader
	// kept is the path of a copy of the append-only files.
	kept string
}

// alarmWithin bounds the time until the alarm. One second is promised; a busy machine gets some seconds more.
const alarmWithin = 15 * time.Second

// Redis loses acknowledged writes while users grab and workers deliver. No user gets a final refusal, the alarm comes
// at once, and `hongbao recover` prints the next command. Later grants are paid and published once.
func TestRedisLosesItsPastUnderLoad(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	p := newPast(t)
	p.runs(3000)
	require.NoError(t, p.rdb.FlushAll(t.Context()).Err())
	p.alarms()
	p.users.join()
	verdicts := p.diagnosed()
	p.users.waitForFrozen(50)
	p.accepted(verdicts)
	p.users.join()
	p.users.waitForFrozen(50)
	p.grantsAfterLoss(verdicts)
}

// Redis restarts from an append-only file that is seconds old, while users grab and workers deliver. No other process
// stops. The shards open without a person and restore the grants that users know. Each grant is paid and published
// once.
func TestRedisComesBackFromAnOlderFileUnderLoad(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	p := newPast(t)
	p.keep()
	p.runs(500)
	p.goBack()
	began := time.Now()
	var seqs []int64
	for _, k := range p.store.Shards() {
		seq, err := p.rdb.HGet(t.Context(), k.Keys.Meta(), "seq").Int64()
		require.NoError(t, err)
		seqs = append(seqs, seq)
	}
	lost := 0
	for at := range p.users.knownGrants("rain-") {
		if at.seq > seqs[at.shard] {
			lost++
		}
	}
	require.Positive(t, lost, "the fault fired")
	for i := range p.store.Len() {
		testkit.Eventually(t, time.Minute, func() bool {
			head, err := p.store.Shard(i).OpenHead(t.Context())
			return err == nil && head.Epoch > 1
		}, "shard %d opens by itself", i)
	}
	t.Logf("%d grants that users know were lost; the shards were open after %s", lost,
		time.Since(began).Round(time.Millisecond))
	p.runs(1000)
	p.users.stop()
	require.Empty(t, p.users.wrong, "users got wrong answers")
	require.Contains(t, p.ok("audit", "--wait", "40s"), "agrees")
	for _, w := range p.workers {
		w.stop(syscall.SIGTERM)
	}
	p.paidOnce()
	has := map[eventAt]string{}
	for _, m := range p.records() {
		at, grant := p.published(m)
		require.NotContains(t, has, at, "published twice")
		has[at] = grant
	}
	for at, grant := range p.users.knownGrants("rain-") {
		require.Equal(t, grant, has[at], "the topic has the grant that a user knows")
	}
	require.EqualValues(t, len(has), p.count(`SELECT count(*) FROM grants`))
	require.Contains(t, p.ok("recover"), "that Redis had lost")
}

// newPast creates a deployment with two shards and a campaign on each. It copies the files of Redis under load.
func newPast(t *testing.T) *past {
	t.Helper()
	server := testkit.NewRedis(t, testkit.RedisOptions{Dir: t.TempDir(), Args: map[string]string{"appendfsync": "always"}})
	p := &past{deployment: setup(t, options{redis: server, kafka: true, postgres: true, shards: 2}), server: server}
	p.reader = p.read()
	ids := []string{p.at(0, "rain"), p.at(1, "rain")}
	for _, id := range ids {
		p.campaign(id, 50_000, 10_000_000)
	}
	for range 2 {
		w := p.start("work")
		w.says(`"working"`)
		p.workers = append(p.workers, w)
	}
	p.users = p.gather(ids...)
	p.runs(1000)
	p.keep()
	return p
}

// at returns the id of a campaign whose home is the shard.
func (d *deployment) at(shard int, name string) string {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("%s-%d", name, i); d.store.Home(id).Index() == shard {
			return id
		}
	}
}

// keep copies the append-only files to kept.
func (p *past) keep() {
	p.t.Helper()
	p.kept = filepath.Join(p.t.TempDir(), "kept")
	require.NoError(p.t, exec.CommandContext(p.t.Context(), "cp", "-r", filepath.Join(p.server.Dir(), "appendonlydir"),
		p.kept).Run())
}

// goBack restarts Redis from the kept files.
func (p *past) goBack() {
	p.t.Helper()
	require.NoError(p.t, p.server.Kill())
	files := filepath.Join(p.server.Dir(), "appendonlydir")
	require.NoError(p.t, os.RemoveAll(files))
	require.NoError(p.t, os.Rename(p.kept, files))
	require.NoError(p.t, p.server.Restart())
}

// runs waits until users got this many more grants, and until half as many more were settled and published.
func (p *past) runs(more int) {
	p.t.Helper()
	granted, settled, published := p.users.granted(), p.count(`SELECT count(*) FROM grants`), p.reader.distinct()
	testkit.EventuallyOK(p.t, time.Minute, func() error {
		if n := p.users.granted() - granted; n < more {
			return fmt.Errorf("%d of %d more grants were announced", n, more)
		}
		if n := p.count(`SELECT count(*) FROM grants`) - settled; n < int64(more)/2 {
			return fmt.Errorf("%d of %d more grants are settled", n, more/2)
		}
		if n := p.reader.distinct() - published; n < more/2 {
			return fmt.Errorf("%d of %d more grants are published", n, more/2)
		}
		return nil
	}, "grants are announced, settled and published")
}

// alarms waits until every worker and producer has logged the alarm.
func (p *past) alarms() {
	p.t.Helper()
	began := time.Now()
	testkit.EventuallyOK(p.t, alarmWithin, func() error {
		raised := p.users.alarmed()
		for _, w := range p.workers {
			for line := range strings.SplitSeq(w.Err.String(), "\n") {
				if strings.Contains(line, "ALARM") && strings.Contains(line, store.LostData) {
					raised++
					break
				}
			}
		}
		if all := len(p.workers) + len(p.users.producers); raised < all {
			return fmt.Errorf("%d of %d processes raised the alarm", raised, all)
		}
		return nil
	}, "the alarm comes at once")
	p.t.Logf("every worker and producer had raised the alarm %s after the loss", time.Since(began).Round(time.Millisecond))
}

// diagnosed runs `hongbao recover`, and requires that it names the loss and the next command.
func (p *past) diagnosed() []recovery.ShardReport {
	p.t.Helper()
	r := p.refused(exitFound, []string{"recover"}, "lost data and stay",
		"hongbao recover --accept-loss --shard N --expect DIGEST --by NAME --why TEXT")
	require.Contains(p.t, r.out, "FROZEN")
	for _, id := range p.users.campaigns {
		require.Contains(p.t, r.out, "campaign "+id+" stays frozen")
	}
	verdicts := p.verdicts()
	lost := 0
	for at := range p.users.knownGrants("rain-") {
		if at.seq > verdicts[at.shard].Redis {
			lost++
		}
		require.LessOrEqual(p.t, at.seq, verdicts[at.shard].Known(), "shard %d: callers have reported the grants that they know",
			at.shard)
	}
	require.Positive(p.t, lost, "the fault fired: users know grants that Redis has lost")
	p.t.Logf("Redis has lost %d grants that users know: %s", lost, strings.TrimSpace(r.out))
	return verdicts
}

// verdicts returns the verdicts of `hongbao recover`, one for each shard.
func (p *past) verdicts() []recovery.ShardReport {
	p.t.Helper()
	var answer struct {
		Shards []recovery.ShardReport `json:"shards"`
	}
	r := p.run("recover", "--json")
	require.NoError(p.t, json.Unmarshal([]byte(r.out), &answer), r.err)
	require.Len(p.t, answer.Shards, p.store.Len())
	return answer.Shards
}

// accepted accepts the loss of each shard, like an operator without a better copy of the data.
func (p *past) accepted(verdicts []recovery.ShardReport) {
	p.t.Helper()
	out := p.acceptLoss("the disk is gone")
	require.Contains(p.t, out, "shard 0 is opened")
	require.Contains(p.t, out, "shard 1 is opened")
	for i := range verdicts {
		head, err := p.store.Shard(i).OpenHead(p.t.Context())
		require.NoError(p.t, err)
		require.Greater(p.t, head.Seq, verdicts[i].Known())
	}
	after := p.ok("recover")
	require.NotContains(p.t, after, "FROZEN")
	require.Contains(p.t, after, "ann accepted that shard 1 continues in epoch 2: the disk is gone (")
}

// grantsAfterLoss creates a new campaign on each shard. When its packets are granted, it checks the ledger, the topic
// and all answers to users.
func (p *past) grantsAfterLoss(verdicts []recovery.ShardReport) {
	p.t.Helper()
	before := p.users.granted()
	fresh := []string{p.at(0, "fresh"), p.at(1, "fresh")}
	for _, id := range fresh {
		p.campaign(id, 300, 100_000)
	}
	p.users.grabs(fresh...)
	testkit.EventuallyOK(p.t, time.Minute, func() error {
		n := p.count(`SELECT count(*) FROM grants WHERE campaign LIKE 'fresh-%'`)
		if m := p.users.granted() - before; n < 600 || m < 600 {
			return fmt.Errorf("%d new grants were announced, %d are settled", m, n)
		}
		return nil
	}, "the new campaigns are granted and settled")
	p.users.stop()
	testkit.EventuallyOK(p.t, time.Minute, func() error {
		has := map[string]bool{}
		for _, m := range p.records() {
			_, grant := p.published(m)
			has[grant] = true
		}
		for _, grant := range p.users.knownGrants("fresh-") {
			if !has[grant] {
				return fmt.Errorf("the topic lacks %s", grant)
			}
		}
		return nil
	}, "the new campaigns are published")
	require.Empty(p.t, p.users.wrong, "users got wrong answers")
	for _, w := range p.workers {
		w.stop(syscall.SIGTERM)
	}
	p.paidOnce()
	p.publishedOnce(verdicts)
	for _, id := range fresh {
		require.Contains(p.t, p.ok("audit", "--campaign", id), "agrees")
	}
}

// count runs a query on the ledger that returns one number.
func (d *deployment) count(sql string) (n int64) {
	d.t.Helper()
	c, err := pgx.Connect(d.t.Context(), d.dsn)
	require.NoError(d.t, err)
	defer c.Close(d.t.Context())
	require.NoError(d.t, c.QueryRow(d.t.Context(), sql).Scan(&n))
	return n
}

// paidOnce checks the ledger: no user has two packets of a campaign, and each balance is the sum of the user's grants.
func (p *past) paidOnce() {
	p.t.Helper()
	require.Zero(p.t, p.count(`SELECT count(*) FROM (SELECT 1 FROM grants GROUP BY campaign, user_id HAVING count(*) > 1) AS twice`))
	require.Zero(p.t, p.count(`SELECT count(*) FROM (SELECT 1 FROM grants GROUP BY shard, seq HAVING count(*) > 1) AS twice`))
	require.Zero(p.t, p.count(`SELECT count(*) FROM account AS a JOIN (SELECT user_id, sum(amount) AS amount FROM grants GROUP BY user_id) AS g
		ON a.id = 'user:CNY:' || g.user_id WHERE a.balance <> g.amount`))
	require.Equal(p.t, p.count(`SELECT sum(amount)::bigint FROM grants`), p.count(`SELECT sum(balance)::bigint FROM account WHERE kind = 'user'`))
}

// published decodes a record of the topic into its event number and its grant.
func (p *past) published(m kafka.Message) (eventAt, string) {
	p.t.Helper()
	e, err := topic.DecodeMessage(m.Headers, m.Key, m.Value)
	require.NoError(p.t, err)
	g := &e.Grant
	return eventAt{g.Shard, g.Seq}, grantText(g.Campaign, g.Packet, g.User)
}

// publishedOnce checks the topic: an event number has one grant, each new grant is published once, and the subscriber
// has processed every event.
func (p *past) publishedOnce(verdicts []recovery.ShardReport) {
	p.t.Helper()
	has, again := map[eventAt]string{}, 0
	for _, m := range p.records() {
		at, grant := p.published(m)
		if was, twice := has[at]; twice {
			again++
			require.Equal(p.t, was, grant, "shard %d, event %d names two grants", at.shard, at.seq)
			require.LessOrEqual(p.t, at.seq, verdicts[at.shard].Redis, "only events that Redis still has may be sent twice")
		}
		has[at] = grant
	}
	p.t.Logf("%d records, %d of them were sent twice", len(has)+again, again)
	for at, grant := range p.users.knownGrants("fresh-") {
		require.Equal(p.t, grant, has[at], "the topic has the grant that a user knows")
	}
	testkit.EventuallyOK(p.t, 30*time.Second, func() error {
		if n := p.reader.distinct(); n != len(has) {
			return fmt.Errorf("the subscriber had %d of %d events", n, len(has))
		}
		return nil
	}, "the subscriber passes over nothing")
	require.Zero(p.t, p.reader.duplicates(), "and nothing has its effect twice")
}
