package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// A pause stops grabs, and a resume lets them continue. A repeat changes nothing and says so, with the decision that
// stays.
func TestPauseResumeShowList(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1000)
	require.Equal(t, "campaign rain is paused\n", d.ok("campaign", "pause", "rain", "--by", "ann", "--why", "test"))
	require.Equal(t, "paused\n", d.ok("grab", "rain", "u"))
	require.Regexp(t, `^campaign rain was paused already, by "ann" since 20\S+Z: "test"\n`+
		`Nothing was changed: that pause stays. The journal has your reason, too.\n$`,
		d.ok("campaign", "pause", "rain", "--by", "ann", "--why", "lunch"))
	require.Equal(t, "paused\n", d.ok("grab", "rain", "u"))
	pause := d.show("rain").Redis.Pause
	require.Equal(t, "ann", pause.By)
	require.Equal(t, "test", pause.Why)
	require.WithinDuration(t, time.Now(), pause.At, time.Minute)
	require.Equal(t, "campaign rain is open\n", d.ok("campaign", "resume", "rain", "--by", "ann", "--why", "test"))
	require.Equal(t, "campaign rain is open already: nothing was changed\n", d.ok("campaign", "resume", "rain", "--by", "ann", "--why", "sure"))
	require.Contains(t, d.ok("journal", "--limit", "1", "--json"), `"why":"sure"`)
	require.Contains(t, d.ok("campaign", "load", "rain"), "campaign rain was loaded already: 10 packets, grabs from ")
	d.refused(2, []string{"grab", "rian", "u"}, "campaign rian is not in Redis: check the id", "`hongbao campaign list`")
	require.Contains(t, d.ok("grab", "rain", "u"), "granted\n")
	s := d.show("rain")
	require.Equal(t, hongbao.Amount(1000), s.Ledger.Funded)
	require.EqualValues(t, 9, s.Redis.Left)
	require.Nil(t, s.Redis.Pause)
	require.NotContains(t, d.ok("campaign", "show", "rain", "--json"), `"seed"`)
	for _, command := range []string{"show", "load"} {
		d.refused(1, []string{"campaign", command, "drizzle"}, "drizzle")
	}
	for _, command := range []string{"pause", "resume"} {
		d.refused(1, []string{"campaign", command, "drizzle", "--by", "ann", "--why", "test"}, "drizzle")
		d.refused(2, []string{"campaign", command, "drizzle"}, "--by and --why are required")
	}
	d.ok("campaign", "create", spec(t, "unloaded", 10, 1000))
	d.refused(1, []string{"campaign", "pause", "unloaded", "--by", "ann", "--why", "test"}, "unloaded")
	require.Nil(t, d.show("unloaded").Redis)
	list := d.ok("campaign", "list")
	require.Regexp(t, `(?m)^ID .*\nrain .* open .*\nunloaded .* created .*\n$`, list)
	d.ok("campaign", "pause", "rain", "--by", "ann", "--why", "test")
	require.Regexp(t, `(?m)^rain .* paused `, d.ok("campaign", "list"))
	require.NoError(t, d.rdb.HSet(t.Context(), d.store.Home("rain").Keys.Campaign("rain"), "packets", "many").Err())
	require.Regexp(t, `(?m)^rain .* unread `, d.ok("campaign", "list"))
}
