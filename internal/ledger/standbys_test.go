package ledger

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// make standbys sets these flags.
var (
	everyStandby = flag.Bool("standbys", false, "run TestStandbys, on real servers with real replication")
	writeTable   = flag.Bool("update", false, "write the table of docs/reliability.md")
)

// replicated is a primary and its standby.
type replicated interface {
	// version names the server.
	version() string
	// config leads to the primary, also after a role change.
	config() Config
	// cut ends the replication: the standby receives nothing more.
	cut(t *testing.T)
	// kill ends the primary.
	kill(t *testing.T)
	// demote makes the primary read-only; connections stay open.
	demote(t *testing.T)
	// promote makes the standby the primary, once it has applied what it has received. New connections lead to it.
	promote(t *testing.T)
	// promoted is the configuration for the former standby.
	promoted() Config
}

// standbyRow is a row of the table.
type standbyRow struct {
	server, settings string
	start            func(t *testing.T) replicated
	demoted          bool // a role change without a fault; else the standby dies, then the primary
	safe             bool // the settings are those that the page names
}

func standbyRows() []standbyRow {
	const (
		sync     = "`synchronous_standby_names`"
		async    = "none: asynchronous"
		semi     = "semi-sync, AFTER_SYNC, a timeout of 49 days"
		falls    = "semi-sync, AFTER_SYNC, a timeout of 1 s: it falls back"
		pg, ours = "PostgreSQL", "MariaDB"
	)
	mine := ours
	if testkit.OnMySQL() {
		mine = "MySQL"
	}
	rows := []standbyRow{
		{pg, sync, pairOfPostgres(true), false, true},
		{pg, async, pairOfPostgres(false), false, false},
		{pg, sync, pairOfPostgres(true), true, true},
		{mine, semi, pairOfMariaDB(4_294_967_295), false, true},
		{mine, falls, pairOfMariaDB(1000), false, false},
		{mine, async, pairOfMariaDB(0), false, false},
		{mine, semi, pairOfMariaDB(4_294_967_295), true, true},
	}
	if testkit.OnMySQL() {
		return rows[3:]
	}
	return rows
}

func (r *standbyRow) fault() string {
	if r.demoted {
		return "a role change that leaves connections open"
	}
	return "the standby dies, then the primary; the standby is promoted"
}

// In each row workers settle grants on a primary with a standby, and the standby becomes the primary. With the settings
// that docs/reliability.md names, no grant that the ledger has confirmed is lost.
func TestStandbys(t *testing.T) {
	if !*everyStandby {
		t.Skip("make standbys runs it") //nolint:forbidigo // it takes a minute
	}
	for _, row := range standbyRows() {
		t.Run(row.server+" "+row.settings+" "+row.fault(), func(t *testing.T) { row.run(t) })
	}
}

// told are the grants that the ledger has confirmed.
type told struct {
	mu      sync.Mutex
	packets map[int64]bool
}

func (c *told) add(first, last int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := first; p <= last; p++ {
		c.packets[p] = true
	}
}

func (c *told) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.packets)
}

func (r *standbyRow) run(t *testing.T) {
	const packets, workers = 200_000, 4
	at := r.start(t)
	f := newFixture(t, at.config())
	f.create(t, "rain", packets)
	c := &told{packets: map[int64]bool{}}
	var next, failed atomic.Int64
	var stops []func()
	for range workers {
		stops = append(stops, testkit.Go(t, func(ctx context.Context) error {
			first := next.Add(10) - 9
			for ctx.Err() == nil {
				if f.Handle(context.WithoutCancel(ctx), testkit.Batch(grantsOf("rain", first, first+9))) != nil {
					failed.Add(1) // it repeats the batch
					continue
				}
				c.add(first, first+9)
				first = next.Add(10) - 9
			}
			return nil
		}))
	}
	testkit.Eventually(t, time.Minute, func() bool { return c.count() > 500 }, "workers settle")
	begin := time.Now()
	if r.demoted {
		at.demote(t)
		at.promote(t)
		before := c.count()
		testkit.Eventually(t, time.Minute, func() bool { return c.count() > before+500 }, "workers settle on the new primary")
	} else {
		at.cut(t)
		before, failures := c.count(), failed.Load()
		testkit.Eventually(t, time.Minute, func() bool {
			return failed.Load()-failures >= 4*workers || c.count()-before >= 20_000
		}, "each worker has repeated what the standby lacks, or goes on without the standby")
		at.kill(t)
	}
	for _, stop := range stops {
		stop()
	}
	if !r.demoted {
		at.promote(t)
	}
	config := at.promoted()
	l := open(t, config)
	lost, after := 0, map[int64]bool{}
	for page := range (packets + 999) / 1000 {
		lacks, err := l.Lacks(t.Context(), grantsOf("rain", int64(page)*1000+1, int64(page)*1000+1000))
		require.NoError(t, err)
		for _, g := range lacks {
			after[g.Packet] = true
		}
	}
	for p := range c.packets {
		if after[p] {
			lost++
		}
	}
	r.server = at.version()
	line := fmt.Sprintf("| %s | %s | %s | %d | %d |", at.version(), r.settings, r.fault(), c.count(), lost)
	t.Log(line, time.Since(begin))
	if *writeTable {
		r.write(t, line)
	}
	if r.safe {
		require.Zero(t, lost, "grants that the ledger has confirmed, and that the new primary lacks")
	} else {
		require.Positive(t, lost, "without these settings grants are lost, or the fault did not occur")
	}
}

const standbyHead = "| server | what commits wait for | what happens | grants told | told and lost |\n" +
	"|---|---|---|---|---|\n"

// write writes a line into the table of the page, in place of the line about the same.
func (r *standbyRow) write(t *testing.T, line string) {
	t.Helper()
	const page = "../../docs/reliability.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, table, found := strings.Cut(string(text), standbyHead)
	require.True(t, found, "%s has no table of standbys", page)
	rest := regexp.MustCompile(`^(\|.*\n)*`).FindString(table)
	kind := regexp.MustCompile(`^\| (\S+)[^|]*(\|[^|]*\|[^|]*\|).*`)
	key := kind.ReplaceAllString(line, "$1$2")
	lines := strings.SplitAfter(strings.TrimSuffix(rest, "\n")+"\n", "\n")
	done := false
	for i, has := range lines {
		if kind.ReplaceAllString(strings.TrimSuffix(has, "\n"), "$1$2") == key {
			lines[i], done = line+"\n", true
		}
	}
	if !done {
		lines = append(lines, line+"\n")
	}
	require.NoError(t, os.WriteFile(page,
		[]byte(before+standbyHead+strings.TrimPrefix(strings.Join(lines, ""), "\n")+strings.TrimPrefix(table, rest)), 0o644))
}

// address is an address whose new connections lead to a server that can be changed; open connections stay.
type address struct {
	addr   string
	target atomic.Pointer[string]
}

func newAddress(t *testing.T, target string) *address {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	a := &address{addr: listener.Addr().String()}
	a.target.Store(&target)
	testkit.Go(t, func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { _ = listener.Close() })
		for {
			client, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			if err != nil {
				return err
			}
			context.AfterFunc(ctx, func() { _ = client.Close() })
			go func() {
				defer client.Close()
				server, err := net.Dial("tcp", *a.target.Load())
				if err != nil {
					return
				}
				defer server.Close()
				go func() {
					_, _ = io.Copy(server, client)
					_ = server.Close()
				}()
				_, _ = io.Copy(client, server)
			}()
		}
	})
	return a
}

// pairConfig has short timeouts, so that a worker often repeats what does not get through.
func pairConfig(c Config) Config {
	c.Timeout, c.LockTimeout, c.Retries, c.ConnectTimeout = 1500*time.Millisecond, time.Second, 2, time.Second
	return c
}

// postgresPair is a PostgreSQL with a standby.
type postgresPair struct{ *mirrored }

func pairOfPostgres(sync bool) func(t *testing.T) replicated {
	return func(t *testing.T) replicated {
		m := newMirrored(t)
		if !sync {
			m.command(t, m.primary, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
		}
		return &postgresPair{m}
	}
}

func (p *postgresPair) version() string { return "PostgreSQL" }

func (p *postgresPair) config() Config {
	c := pairConfig(p.mirrored.config)
	return c.at(fmt.Sprintf("postgres://postgres@%s,%s/%s?sslmode=disable&target_session_attrs=read-write",
		p.primary.Addr, p.standby.Addr, p.database))
}

func (p *postgresPair) cut(t *testing.T)  { require.NoError(t, p.standby.Kill()) }
func (p *postgresPair) kill(t *testing.T) { require.NoError(t, p.primary.Kill()) }

func (p *postgresPair) demote(t *testing.T) {
	p.command(t, p.primary, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	conn := connect(t, p.primary.DSN(p.database))
	testkit.Eventually(t, 20*time.Second, func() (all bool) { // all it has written is on the standby
		require.NoError(t, conn.QueryRow(t.Context(),
			`SELECT bool_and(replay_lsn = pg_current_wal_lsn()) FROM pg_stat_replication`).Scan(&all))
		return all
	}, "the standby has everything")
}

func (p *postgresPair) promote(t *testing.T) {
	if !p.answers() {
		require.NoError(t, p.standby.Restart())
	}
	p.command(t, p.standby, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_promote()")
}

func (p *postgresPair) answers() bool {
	conn, err := net.DialTimeout("tcp", p.standby.Addr, time.Second)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

func (p *postgresPair) promoted() Config {
	c := p.mirrored.config.at(p.standby.DSN(p.database))
	c.Timeout = 30 * time.Second
	return c
}
