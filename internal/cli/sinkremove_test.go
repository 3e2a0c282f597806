package cli

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

var removeCRM = []string{"sink", "remove", "crm", "--by", "ann", "--why", "the CRM is gone"}

// A webhook with dead letters, waiting grants and a pause is removed. Each refusal changes nothing and says what to do.
// Added again, it gets what is then in the stream and what it has not got, and nothing twice.
func TestSinkRemove(t *testing.T) {
	t.Parallel()
	d, r := hooked(t, options{shards: 2, lease: time.Second})
	for _, id := range []string{"rain", "snow"} { // their homes are different shards
		d.campaign(id, 200, 20_000)
	}
	w := d.start("work")
	require.Equal(t, 40, d.crowdOf("rain", 0, 20)+d.crowdOf("snow", 0, 20))
	r.waitFor(t, 40)
	r.status.Store(http.StatusUnprocessableEntity)
	require.Equal(t, 3, d.crowdOf("rain", 20, 3))
	testkit.Eventually(t, time.Minute, func() bool {
		return strings.Contains(d.ok("dead", "list"), "crm/") &&
			d.crm().Dead == 3
	}, "three dead letters")
	d.refused(2, removeCRM, "sink crm is among deployment.sinks (balance, crm): take it out of the configuration")

	d.ok("sink", "limit", "crm", "--rate", "7", "--by", "ann", "--why", "slowly")
	d.ok("sink", "pause", "crm", "--by", "ann", "--why", "it is broken")
	require.Equal(t, 5, d.crowdOf("snow", 20, 5))
	hooks := slices.Clone(d.env)
	d.env = slices.DeleteFunc(d.env, func(v string) bool { return strings.HasPrefix(v, "HONGBAO_WEBHOOK_CRM") })
	d.set("DEPLOYMENT_SINKS", "balance")
	require.Contains(t, d.refused(1, removeCRM, "sink crm has a live worker, ", "stop its workers").err, "30s later")
	w.stop(syscall.SIGTERM)
	require.Contains(t, d.ok("audit", "--wait", "1m"), "agree")
	testkit.Eventually(t, time.Minute, func() bool {
		return !strings.Contains(runProgram(t, d.env, removeCRM...).err, "has a live worker")
	}, "the leases end")
	d.env = slices.Concat(d.env, d.env[:d.times]) // from now on commands have the workers' short lease
	d.refused(1, removeCRM, "sink crm has not got 8 grants and closes: 5 wait for it, and 3 are dead letters", "add --give-up 8")
	d.refused(2, append(slices.Clone(removeCRM), "--give-up", "-1"), "--give-up -1: want 0 or more")
	ok, err := d.store.HasGroup(t.Context(), "crm")
	require.NoError(t, err)
	require.True(t, ok, "nothing was done")

	require.Equal(t, "crm is removed from 2 shards. It never gets 5 grants and closes that waited; 3 dead letters are dropped.\n",
		d.ok(append(slices.Clone(removeCRM), "--give-up", "8")...))
	ok, err = d.store.HasGroup(t.Context(), "crm")
	require.NoError(t, err)
	require.False(t, ok)
	require.Equal(t, "crm has no group on any shard and no dead letter: nothing was left to remove\n", d.ok(removeCRM...))
	d.refused(1, []string{"sink", "remove", "crn", "--by", "ann", "--why", "gone"}, "sink crn is unknown")
	j := slices.DeleteFunc(d.journal().Entries, func(e access.Entry) bool { return e.Action != access.RemoveSink })
	require.Len(t, j, 2)
	require.Equal(t, []any{2., 5., 3.}, []any{j[1].Details["shards"], j[1].Details["given_up"],
		j[1].Details["letters"]})

	// It comes back: neither paused nor limited, and its done bits are still there.
	d.env = hooks
	r.status.Store(http.StatusNoContent)
	require.False(t, d.crm().Pause.Paused)
	require.Nil(t, d.crm().Limit.GrantsPerSecond)
	w = d.start("work")
	require.Equal(t, 4, d.crowdOf("rain", 30, 4))
	r.waitFor(t, 49)
	testkit.Eventually(t, time.Minute, func() bool { return d.crm().Waiting == 0 }, "crm has finished")
	w.stop(syscall.SIGTERM)
	require.Len(t, r.got(), 49)
	require.Zero(t, r.twice)
}

// A dead letter stays while an open claim has its grant, and so does the group.
func TestSinkRemoveWithAnOpenClaim(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true, lease: time.Second})
	d.campaign("rain", 10, 1000)
	for _, user := range []string{"u1", "u2"} {
		d.ok("grab", "rain", user)
	}
	d.buried(configs.SinkKafka)
	d.claimed(time.Now(), time.Now())
	d.set("DEPLOYMENT_SINKS", "balance")
	testkit.EventuallyOK(t, time.Minute, func() error {
		r := runProgram(t, d.env, "sink", "remove", "kafka", "--give-up", "2", "--by", "ann", "--why", "nobody reads it")
		if strings.Contains(r.err, "has a live worker") || strings.Contains(r.err, "did not answer") { // a busy machine
			return errors.New(r.err)
		}
		require.Equal(t, 1, r.code, r.err)
		require.Contains(t, r.err, "2 dead letters stay, because an open claim may still deliver their grants: put the sink back")
		return nil
	}, "the lease ends")
	ok, err := d.store.HasGroup(t.Context(), "kafka")
	require.NoError(t, err)
	require.True(t, ok)
}

// removed removes a sink after the leases of its workers, which have stopped, and returns what the command prints. The
// command has the workers' short lease.
func (d *deployment) removed(args ...string) (out string) {
	d.t.Helper()
	testkit.EventuallyOK(d.t, time.Minute, func() error {
		r := runProgram(d.t, d.env, append([]string{"sink", "remove"}, args...)...)
		if strings.Contains(r.err, "has a live worker") {
			return errors.New(r.err)
		}
		require.Zero(d.t, r.code, r.err)
		out = r.out
		return nil
	}, "the leases end")
	return out
}

// crm returns the status of sink crm.
func (d *deployment) crm() deliveries.SinkStatus {
	d.t.Helper()
	status := decided[deliveries.Status](d.t, d.run("status", "--json").out)
	i := slices.IndexFunc(status.Sinks, func(s deliveries.SinkStatus) bool { return s.Sink == "crm" })
	require.GreaterOrEqual(d.t, i, 0)
	return status.Sinks[i]
}
