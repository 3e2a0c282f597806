package cli

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ops"
)

// What became of a user's grab, from the grab to the topic, also while one of the servers is down.
func TestWhy(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	d.campaign("rain", 10, 1_000)
	d.ok("grab", "rain", "u1", "--request-id", "r1")
	says := func(code int, env []string, args ...string) string {
		t.Helper()
		at := *d
		at.env = append(at.env[:len(at.env):len(at.env)], env...)
		r := at.run(append([]string{"why"}, args...)...)
		require.Equal(t, code, r.code, "%s%s", r.out, r.err)
		return r.out
	}
	const won = `^u1 won \d\.\d\d CNY at 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \(Asia/Shanghai\), `
	require.Regexp(t, won+`not paid yet: no worker runs for sink balance, not announced yet: no worker runs for sink kafka\.`,
		says(0, nil, "rain", "u1"))
	w := d.start("work")
	d.quiet()
	text := says(0, nil, "rain", "u1")
	require.Regexp(t, won+`paid( at once| \d+\.\d s later| at .*)?, announced( at once| \d+\.\d s later| at .*)?\. u1 is at the limit of 1 packet: further grabs are refused\.\n`, text)
	require.Regexp(t, `(?m)^Asia/Shanghai +UTC +STEP *$`, text)
	require.Regexp(t, `(?m)^20\d\d-\d\d-\d\d [0-9:.]{12}  \d\d:\d\d:\d\dZ  won +\d\.\d\d CNY, packet \d+, event 0-1, request r1$`, text)
	require.Regexp(t, `(?m)^20\d\d-\d\d-\d\d [0-9:.]{12}  \d\d:\d\d:\d\dZ  paid +booked in the ledger$`, text)
	require.Regexp(t, `(?m)^20\d\d-\d\d-\d\d [0-9:.]{12}  \d\d:\d\d:\d\dZ  announced +partition \d, offset \d$`, text)
	require.Contains(t, says(0, nil, "rain", "u9"), "u9 has won nothing in rain: the campaign is open and ends at ")
	require.Empty(t, says(1, nil, "nowhere", "u1"))

	// Each server in turn is down.
	require.Regexp(t, won+`perhaps paid: the ledger could not be asked, announced( at once| \d+\.\d s later| at .*)?\.`, says(exitOutage,
		[]string{"HONGBAO_LEDGER_DRIVER=postgres", "HONGBAO_LEDGER_DSN=postgres://u@127.0.0.1:2/d"}, "rain", "u1"))
	require.Regexp(t, won+`paid( at once| \d+\.\d s later| at .*)?, announced\.`, says(exitOutage,
		[]string{"HONGBAO_KAFKA_BROKERS=127.0.0.1:3"}, "rain", "u1"), "the done bit says so")
	redis := []string{"HONGBAO_REDIS_ADDRS=127.0.0.1:1"}
	require.Regexp(t, won+`paid( at once| \d+\.\d s later| at .*)?, the rest is not known: Redis could not be asked\.`,
		says(exitOutage, redis, "rain", "u1"))
	require.Equal(t, "It is not known whether u9 won in rain: Redis could not be asked, and the ledger has no grant.\n",
		says(exitOutage, redis, "rain", "u9"))
	w.stop(syscall.SIGTERM)

	d.ok("grab", "rain", "u2")
	d.ok("sink", "pause", "balance", "--by", "ann", "--why", "the bank is closed")
	out := decided[ops.Why](t, says(0, nil, "rain", "u2", "--json"))
	require.Contains(t, out.Sentence, "not paid yet: sink balance is paused by ann: the bank is closed")
	require.Equal(t, ops.WhyWaiting, out.Grants[0].State)
}

// The campaign explains why a user has won nothing, and a dead letter why a grant is not paid.
func TestWhyNot(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.ok("campaign", "create", spec(t, "rain", 10, 1_000))
	require.Equal(t, "u1 has won nothing in rain: the campaign is not loaded, so no one can win yet.\n", d.ok("why", "rain", "u1"))
	d.ok("campaign", "load", "rain")
	d.ok("campaign", "pause", "rain", "--by", "ann", "--why", "the shop is closed")
	require.Regexp(t, `^u1 has won nothing in rain: the campaign is paused \(Paused by ann at \S+ \S+ UTC: the shop is closed\), `,
		d.ok("why", "rain", "u1"))
	d.ok("campaign", "resume", "rain", "--by", "ann", "--why", "it is open")
	d.ok("grab", "rain", "u1")
	d.buried(configs.SinkBalance)
	out := decided[ops.Why](t, d.ok("why", "rain", "u1", "--json"))
	require.Contains(t, out.Sentence, "not paid: it is a dead letter: ")
	d.withholds("rain", 2)
	require.Contains(t, d.ok("why", "rain", "u9"), "; 2 packets are withheld, because an unknown user may have won before Redis lost "+
		"the record (hongbao hole list rain).\n")
	require.Equal(t, ops.WhyPerson, out.Grants[0].State)
}
