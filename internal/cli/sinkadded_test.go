package cli

import (
	"context"
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/topic"
)

// crowds lets users grab in each campaign, 60 a tenth of a second, until stop, which returns how many got a packet.
func (d *deployment) crowds(ids ...string) (stop func() int) {
	ctx, cancel := context.WithCancel(d.t.Context())
	type crowd struct {
		got int
		err error
	}
	ended := make(chan crowd, len(ids))
	for _, id := range ids {
		go func() {
			var c crowd
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for from := 0; ctx.Err() == nil && c.err == nil; from += 60 {
				var got int
				got, c.err = d.grabs(id, from, 60)
				c.got += got
				select {
				case <-tick.C:
				case <-ctx.Done():
				}
			}
			ended <- c
		}()
	}
	return func() (sum int) {
		cancel()
		for range ids {
			c := <-ended
			require.NoError(d.t, c.err)
			sum += c.got
		}
		return sum
	}
}

// roll replaces the workers one by one by workers of these sinks.
func (d *deployment) roll(sinks string, workers []*program) (next []*program) {
	d.t.Helper()
	d.set("DEPLOYMENT_SINKS", sinks)
	for _, old := range workers {
		w := d.start("work")
		w.says(`"working"`)
		require.NotContains(d.t, old.stop(syscall.SIGTERM).err, "INCIDENT")
		next = append(next, w)
	}
	return next
}

// trimmed waits until each shard's stream begins after the given seq.
func (d *deployment) trimmed(after map[int]int64) {
	d.t.Helper()
	testkit.Eventually(d.t, 30*time.Second, func() bool {
		for i := range d.store.Len() {
			begin, err := d.store.Shard(i).Group("none").Begin(d.t.Context())
			require.NoError(d.t, err)
			if begin.First <= after[i] {
				return false
			}
		}
		return true
	}, "the trimmer deletes")
}

// Under load sink kafka is added, removed, and added again, and a worker is killed. What the trimmer has deleted
// meanwhile is no incident, and the audit does not expect it. The topic has each grant that the sink owes, once.
func TestSinkAddedRemovedAndAddedAgain(t *testing.T) {
	t.Parallel()
	d := setup(t, options{shards: 2, postgres: true, kafka: true})
	d.set("TRIMMER_RETENTION", "0s", "DEPLOYMENT_SINKS", "balance")
	for _, id := range []string{"rain", "snow"} { // their homes are different shards
		d.campaign(id, 60_000, 10_000_000)
	}
	workers := []*program{d.start("work"), d.start("work")}
	for _, w := range workers {
		w.says(`"working"`)
	}
	stop := d.crowds("rain", "snow")
	d.trimmed(map[int]int64{0: 300, 1: 300})

	workers = d.roll("balance,kafka", workers)
	testkit.Eventually(t, 30*time.Second, func() bool { return d.doneBy("kafka") > 1_000 }, "the added sink works")
	workers[0].Signal(syscall.SIGKILL)
	workers[0] = d.start("work")
	workers[0].says(`"working"`)

	workers = d.roll("balance", workers)
	removed := map[int]int64{}
	for i, k := range d.store.Shards() {
		head, err := k.Head(t.Context())
		require.NoError(t, err)
		removed[i] = head.Seq
	}
	require.Contains(t, d.removed("kafka", "--give-up", "60000", "--by", "ann", "--why", "nobody reads the topic"),
		"kafka is removed from 2 shards")
	d.trimmed(map[int]int64{0: removed[0] + 200, 1: removed[1] + 200})
	before := d.doneBy("kafka")

	workers = d.roll("balance,kafka", workers)
	testkit.Eventually(t, 30*time.Second, func() bool { return d.doneBy("kafka") > before+1_000 }, "the sink works again")
	got := stop()
	d.quiet()
	for _, w := range workers {
		require.NotContains(t, w.stop(syscall.SIGTERM).err, "INCIDENT")
	}

	r := d.audit(0)
	require.Equal(t, []int64{int64(got), int64(got), 0, 0}, []int64{r.Total.Granted, r.Total.Settled, r.Total.Duplicates,
		r.Total.DeadLetters + r.Total.Quarantined + r.Total.InFlight})
	require.Equal(t, int64(got), r.Total.Published+r.Total.NotOwed)
	d.publishedOnce(got, r.Total.NotOwed, removed)
}

// publishedOnce requires that the topic has each grant that sink kafka owes, once. The sink was removed once, at the seqs
// removed.
func (d *deployment) publishedOnce(grants int, notOwed int64, removed map[int]int64) {
	t := d.t
	t.Helper()
	var status deliveries.Status
	require.NoError(t, json.Unmarshal([]byte(d.ok("status", "--json")), &status))
	require.Len(t, status.NotOwed, 2*len(removed))
	for i, n := range status.NotOwed {
		require.Equal(t, []any{"kafka", i / 2, i%2 == 0}, []any{n.Sink, n.Shard, n.Removed.IsZero()})
		if i%2 == 0 {
			require.Greater(t, n.Last, int64(299), "history was trimmed before the sink was added")
		} else {
			require.Greater(t, n.Last, removed[n.Shard]+199, "events were trimmed while the sink was gone")
		}
	}
	type event struct {
		shard int
		seq   int64
	}
	published := map[event]int{}
	for _, m := range d.records() {
		e, err := topic.DecodeMessage(m.Headers, m.Key, m.Value)
		require.NoError(t, err)
		published[event{e.Grant.Shard, e.Grant.Seq}]++
	}
	all, without := 0, int64(0)
	for i := range d.store.Len() {
		head, err := d.store.Shard(i).Head(t.Context())
		require.NoError(t, err)
		for seq := int64(1); seq <= head.Seq; seq++ {
			owed := true
			for _, n := range status.NotOwed {
				owed = owed && (n.Shard != i || seq < n.First || seq > n.Last)
			}
			times := published[event{i, seq}]
			require.LessOrEqual(t, times, 1, "event %d-%d", i, seq)
			if times == 0 {
				require.False(t, owed, "event %d-%d is missing", i, seq)
				without++
			}
			all++
		}
	}
	require.Equal(t, grants, all)
	require.Equal(t, notOwed, without)
	text := d.ok("status")
	require.Contains(t, text, "sink kafka was added at ")
	require.Contains(t, text, ": it was removed at ")
	t.Logf("%d grants, %d of them not owed and not published", all, without)
}
