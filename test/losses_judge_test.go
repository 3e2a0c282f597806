package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/losses"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// result has the numbers of a row in the table.
type result struct {
	missing                                             int64 // lower bound of the grants that Redis lost
	answered, lost, twice, paidTwice, copies, seqsTwice int
	holes                                               int64
	withheld                                            int64 // packets withheld for processes that did not report
	lastLost                                            int64 // the highest seq that Redis lost, in a restore with withheld packets
	frozen                                              time.Duration
	person                                              bool
	unreported                                          int // lost grants that are in no report
	lostOf                                              []string
}

// isOpen reports whether a shard was opened after the loss.
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

// opens waits until the shards are open again. If they stay frozen, it follows the runbook like a person.
func (l *losing) opens() {
	l.t.Helper()
	limit, cancel := context.WithTimeout(l.t.Context(), max(l.loss.patience, 25*time.Second))
	defer cancel()
	turn := time.NewTicker(10 * time.Millisecond)
	defer turn.Stop()
	for !l.person && !l.allOpen() {
		select {
		case <-turn.C:
		case <-limit.Done():
			l.person = true
			l.decide()
		}
	}
	l.frozen = time.Since(l.since)
}

// decide accepts the losses, and refunds the campaigns that stay frozen.
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

// announceMissing publishes the paid grants that the topic lacks, with the command that the audit recommends.
func (l *losing) announceMissing() {
	l.t.Helper()
	if _, text := l.run("audit", "--wait", "40s"); strings.Contains(text, "missing_in_topic") {
		l.ok("replay", "missing", "--to", "kafka", "--missing")
	}
}

// recovery returns the report of `hongbao recover`.
func (l *losing) recovery() (r losses.Recovery) {
	l.t.Helper()
	cmd := l.command("recover", "--json")
	_ = cmd.Run() // exit code 3: something is lost
	out := fmt.Sprint(cmd.Stdout)
	require.NoError(l.t, json.NewDecoder(bytes.NewBufferString(out)).Decode(&r), "%s%s", out, cmd.Stderr)
	return r
}

// crowds returns the users of all processes.
func (l *losing) crowds() []*callers { return slices.Concat(l.busy, l.near, []*callers{l.idle}) }

// judge ends the rain. Every user grabs once more through another process. Then judge compares what users were told
// with the ledger and the topic.
func (l *losing) judge() {
	l.t.Helper()
	l.halt()
	ctx, cancel := context.WithTimeout(l.t.Context(), 4*time.Minute)
	defer cancel()
	everyone, p := l.crowds(), l.producer()
	for _, c := range everyone {
		c.p = p
		c.grab(ctx, c.first, c.first+int(c.asked.Load()), 64)
		require.NoError(l.t, c.failed)
	}
	require.NoError(l.t, ctx.Err(), "everyone gets a final answer; the last other answer: %s", l.busy[0].lastAnswer())
	if l.person {
		l.announceMissing()
	}
	l.allAgree()
	l.remembersMemory()
	for _, w := range l.workers {
		if !w.Ended() {
			w.Signal(syscall.SIGTERM)
			require.Zero(l.t, w.Wait(time.Minute), w.Err.String())
		}
	}
	for _, r := range l.recovery().Restored {
		if r.Epoch > l.epochs[r.Shard] && (r.Unknown > 0 || r.Silent) {
			l.holes += r.Unknown
			l.withheld += r.Withheld
			l.lastLost = max(l.lastLost, r.Last)
			l.reported[r.Shard] = append(l.reported[r.Shard], stream.SeqRange{First: r.First, Last: r.Last})
		}
	}
	l.count(everyone)
}

// grantKey identifies a packet that a user got.
type grantKey struct {
	campaign, user string
	packet         int64
}

// eventKey identifies an event.
type eventKey struct {
	shard int
	seq   int64
}

// count compares the answers that users got with the ledger and the topic.
func (l *losing) count(everyone []*callers) {
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
	for _, c := range everyone {
		for user, packets := range c.granted {
			if len(packets) > 1 {
				l.twice++
			}
			for packet, r := range packets {
				g := grantKey{c.campaign, user, packet}
				l.answered++
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
		var r deliveries.Tailed
		require.NoError(l.t, json.Unmarshal([]byte(line), &r))
		packet := fmt.Sprint(r.Campaign, " ", r.Packet)
		if events[r.Event] || packets[packet] {
			l.copies++
		}
		events[r.Event], packets[packet] = true, true
	}
}

// eachPaid calls fn with each grant in the ledger.
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

// ask runs a query on the ledger that returns one number.
func (l *losing) ask(query string) (n int64) {
	l.t.Helper()
	conn, err := pgx.Connect(l.t.Context(), l.dsn)
	require.NoError(l.t, err)
	defer conn.Close(context.Background())
	require.NoError(l.t, conn.QueryRow(l.t.Context(), query).Scan(&n))
	return n
}
