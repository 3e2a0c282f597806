package cli

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// While a crowd grabs, workers of both sinks are killed with SIGKILL many times. Each sink gets each grant once. A kill
// counts only if the worker had pending entries.
func TestKilledWorkersLoseAndRepeatNothing(t *testing.T) {
	t.Parallel()
	for _, postgres := range []bool{true, false} {
		t.Run(fmt.Sprint("postgres ", postgres), func(t *testing.T) {
			t.Parallel()
			killWorkers(t, setup(t, options{postgres: postgres, kafka: true, shards: 2}))
		})
	}
}

func killWorkers(t *testing.T, d *deployment) {
	t.Helper()
	const packets, waves, kills = 8000, 40, 20
	// When a worker dies, each of its pending entries loses an attempt. The same entry may be pending at every kill.
	d.set("CONSUMER_BATCH_GRANTS", "200", "CONSUMER_MAX_ATTEMPTS", "100")
	ids := []string{"rain", "drizzle", "storm", "mist"}
	shards := map[int]bool{}
	for _, id := range ids {
		d.campaign(id, packets/int64(len(ids)), 1_000_000)
		shards[d.store.Home(id).Index()] = true
	}
	require.Len(t, shards, 2, "both shards have campaigns")

	var wave atomic.Int64
	var granted int
	var errs []error
	var crowd sync.WaitGroup
	next := make(chan struct{})
	crowd.Go(func() {
		for range next {
			n := int(wave.Add(1)) - 1
			for _, id := range ids {
				got, err := d.grabs(id, n*packets/waves/len(ids), packets/waves/len(ids))
				granted, errs = granted+got, append(errs, err)
			}
		}
	})
	peer := d.start("work", "--sink", "balance")
	fired := 0
	for run := 0; fired < kills && run < 2*kills; run++ {
		w := d.start("work")
		w.says(`"working"`)
		if wave.Load() < waves {
			next <- struct{}{}
		}
		most, began := rand.Int64N(4), time.Now()
		testkit.Eventually(t, 20*time.Second, func() bool {
			pending := d.pendingOf(w)
			// The workers may have finished the whole wave between two looks. Then this kill does not count.
			return pending > most || (wave.Load() >= waves || time.Since(began) > 5*time.Second) && d.idle()
		}, "the worker has begun")
		w.Kill()
		if pending := d.pendingOf(w); pending > 0 {
			fired++
		}
		if run%5 == 4 {
			peer.Kill()
			peer = d.start("work", "--sink", "balance")
		}
	}
	for wave.Load() < waves {
		next <- struct{}{}
	}
	close(next)
	crowd.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, packets, granted)
	require.GreaterOrEqual(t, fired, kills/2, "the number of kills of workers with pending entries")
	w := d.start("work")
	d.quiet()
	w.stop(syscall.SIGTERM)
	peer.stop(syscall.SIGTERM)
	r := d.agrees(packets)
	require.Zero(t, r.Total.DoubleCredits+r.Total.Lost+r.Total.Duplicates+r.Total.MissingInTopic+r.Total.OpenClaims)
	t.Logf("%d kills of workers with pending entries", fired)
}

// pendingOf counts the pending entries of a worker's process in all groups and shards.
func (d *deployment) pendingOf(w *program) int64 {
	d.t.Helper()
	sum := int64(0)
	for i := range d.store.Len() {
		for _, group := range []string{"balance", "kafka"} {
			list, err := d.rdb.XInfoConsumers(d.t.Context(), d.store.Shard(i).Keys.Events(), group).Result()
			if err != nil && (strings.Contains(err.Error(), "NOGROUP") || strings.Contains(err.Error(), "no such key")) {
				continue // no worker has created the group yet
			}
			require.NoError(d.t, err)
			for _, c := range list {
				if strings.Contains(c.Name, fmt.Sprintf("-%d-", w.Cmd.Process.Pid)) {
					sum += c.Pending
				}
			}
		}
	}
	return sum
}

// idle reports whether every entry is delivered and acked.
func (d *deployment) idle() bool {
	pending, lag, _ := d.pending()
	return pending+lag == 0
}
