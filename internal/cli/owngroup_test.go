package cli

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The worker of another program pauses a campaign for its own consumer group, because its receiver refuses the grants.
// An operator resumes it with the commands for sinks, and pauses and limits the group.
func TestSinkCommandsForTheGroupOfAnotherProgram(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 100, 1_000)
	unknown := []string{"sink", "resume", "mail", "--campaign", "rain", "--by", "ann", "--why", "repaired"}
	d.refused(exitRefused, unknown, `SINK is unknown: deployment.sinks has balance, and no shard has a consumer group`)
	var refuses atomic.Bool
	var mailed atomic.Int64
	refuses.Store(true)
	ownWorker(t, d, "mail", hongbao.HandlerFunc(func(_ context.Context, batch hongbao.Batch) []error {
		grants := batch.Grants
		errs := make([]error, len(grants))
		for i := range errs {
			if refuses.Load() {
				errs[i] = hongbao.Errorf(hongbao.ClassPermanent, "the address is wrong")
			} else {
				mailed.Add(1)
			}
		}
		return errs
	}))
	paused := func() bool {
		list, err := d.store.Home("rain").Group("mail").PausedCampaigns(t.Context())
		require.NoError(t, err)
		return len(list) == 1 && list[0].Paused && list[0].By == stream.ByWorker
	}
	require.Equal(t, 1, d.crowdOf("rain", 0, 1))
	testkit.Eventually(t, 30*time.Second, paused, "the worker pauses the campaign for its group")
	refuses.Store(false)
	require.Equal(t, 9, d.crowdOf("rain", 1, 9))
	require.Contains(t, d.ok(unknown...), "campaign rain is resumed at mail")
	testkit.Eventually(t, 30*time.Second, func() bool { return mailed.Load() == 9 }, "the other grants are delivered")

	require.Contains(t, d.ok("sink", "pause", "mail", "--by", "ann", "--why", "the mail server is down"), "mail is paused")
	control, err := d.store.Shard(0).Group("mail").Control(t.Context())
	require.NoError(t, err)
	require.True(t, control.Paused)
	require.Contains(t, d.ok("sink", "resume", "mail", "--by", "ann", "--why", "it is up"), "mail is resumed")
	require.Contains(t, d.ok("sink", "limit", "mail", "--rate", "5", "--by", "ann", "--why", "slowly"),
		"mail is limited to 5 grants a second")
}
