package subscriber

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/topic"
)

// childEnv makes the test binary run as a subscriber. Its value is "address topic dead-letters database commits mid".
// After the given number of commits with new effects, the process kills itself between the commit in the database and
// the commit in Kafka. If mid is true, it kills itself in the middle of the next effect instead.
const childEnv = "HONGBAO_SUBSCRIBER_CHILD"

func childMain() {
	var d kafkaFixture
	var path string
	m := &mortal{}
	if _, err := fmt.Sscan(os.Getenv(childEnv), &d.addr, &d.topic, &d.burial, &path, &m.left, &m.mid); err != nil {
		panic(err)
	}
	db, err := sql.Open("sqlite", "file:"+path+
		"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		panic(err)
	}
	db.SetMaxOpenConns(1)
	sink, err := NewSQL(context.Background(), SQLConfig{DB: db, Dialect: sqLite, Name: "g", Timeout: 20 * time.Second,
		Effect: rows(m.effect)})
	if err != nil {
		panic(err)
	}
	cfg := d.config(sink)
	cfg.BatchEvents, cfg.SessionTimeout, cfg.DrainTimeout = 40, time.Second, time.Second/2
	s, err := New(cfg)
	if err != nil {
		panic(err)
	}
	commit := s.commit
	s.commit = func(g *kafka.Generation, partition int, at position) error {
		m.committing()
		return commit(g, partition, at)
	}
	panic(s.Run(context.Background()))
}

// mortal kills the process instead of a commit in Kafka, or before the commit in the database.
type mortal struct {
	mu   sync.Mutex
	left int // commits before the kill
	mid  bool
	seen int // number of effects since the last commit
}

func (m *mortal) committing() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen > 0 {
		if m.left == 0 {
			die()
		}
		m.left--
		m.seen = 0
	}
}

func (m *mortal) effect(*topic.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen++
	if m.mid && m.left == 0 && m.seen == 3 {
		die()
	}
	return nil
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// Four processes die between the commit in the database and the commit of the offsets, and two die in the middle of an
// effect (F56). The last process reads the events again. It drops the events that had their effect, and runs the
// unfinished effects.
func TestKafkaKilledBetweenEffectAndCommit(t *testing.T) {
	t.Parallel()
	broker := testkit.NewKafka(t, testkit.KafkaOptions{Properties: map[string]string{"group.min.session.timeout.ms": "1000"}})
	d, path := real(t, broker, 2), tempFile(t)
	db := sqliteDB(t, path)
	sink := db.sink(t, nil)
	const n = 400
	d.write(t, 2, records(0, 1, n)...)
	d.write(t, 2, records(1, 1, n)...)
	const kills = 6
	for life := range kills {
		mid := life%3 == 1
		before, _ := db.count(t)
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(),
			childEnv+"="+strings.Join([]string{d.addr, d.topic, d.burial, path, fmt.Sprint(life), fmt.Sprint(mid)}, " "))
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case err := <-done:
			require.ErrorContains(t, err, "killed", "life %d", life)
		case <-time.After(soon):
			require.NoError(t, cmd.Process.Kill())
			require.FailNow(t, "the subscriber did not reach its commit", "%v", <-done)
		}
		after, distinct := db.count(t)
		require.Greater(t, after, before, "life %d had effects", life)
		require.Equal(t, after, distinct, "and none twice")
	}
	w := start(t, d.config(sink))
	testkit.Eventually(t, soon, func() bool {
		s := w.Stats()
		effects, _ := db.count(t)
		return effects == 2*n &&
			s.Repeated > 0
	}, "the rest")
	require.NoError(t, w.stop())
	effects, distinct := db.count(t)
	require.Equal(t, 2*n, effects)
	require.Equal(t, 2*n, distinct)
	s := w.Stats()
	require.Positive(t, s.Repeated, "events of the last dead process were read again")
	t.Logf(
		"%d kills: %d effects of %d events; the last process dropped %d repeated events", kills, effects, 2*n, s.Repeated)
}
