package control

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// stocked returns the amounts of the packets that are left in Redis.
func (d *desk) stocked(id string, places int) map[string]bool {
	d.t.Helper()
	rdb := d.cfg.RedisClient()
	defer func() { require.NoError(d.t, rdb.Close()) }()
	st, err := store.New(store.Config{Redis: rdb, Space: d.cfg.Space()})
	require.NoError(d.t, err)
	amounts := map[string]bool{}
	for _, k := range st.Places(id, places) {
		packets, err := rdb.LRange(d.t.Context(), k.Keys.Stock(id), 0, -1).Result()
		require.NoError(d.t, err)
		for _, p := range packets {
			_, amount, _ := strings.Cut(p, " ")
			amounts[amount] = true
		}
	}
	return amounts
}

// Each shard has one packet of the campaign, so the amount left on a shard is the amount of a packet. No caller may
// see the amount of a packet before a user has it, even after the close. The amounts of granted packets are shown.
func TestNoAmountBeforeTheReveal(t *testing.T) {
	t.Parallel()
	const packets = 3
	d := setup(t, options{shards: packets})
	c := campaignOf("rain", packets, 900_000_000)
	c.Shards, c.Split = packets, hongbao.Split{Mode: hongbao.SplitRandom, Min: 100_000_000, Max: 700_000_000}
	d.load(c)
	secret := d.stocked(c.ID, packets)
	require.Len(t, secret, packets)
	shown := func(path, amount string) bool {
		t.Helper()
		text := d.get("treasurer", path).Text
		return regexp.MustCompile(`\b` + amount + `\b`).MatchString(text)
	}
	hidden := func(when string) {
		t.Helper()
		for _, path := range []string{"", "/rain", "/rain/ending", "/rain/trail?packet=1", "/rain/trail?packet=2",
			"/rain/trail?packet=3"} {
			for amount := range secret {
				require.False(t, shown("/v1/campaigns"+path, amount), "%s: %s shows %s", when, path, amount)
			}
		}
		for amount := range secret {
			require.False(t, shown("/v1/journal", amount), "%s: the journal shows %s", when, amount)
		}
	}
	hidden("nothing is granted")
	got := strconv.FormatInt(int64(d.grab("rain", "u1").Amount), 10)
	require.True(t, secret[got])
	require.True(t, shown("/v1/campaigns/rain/trail?user=u1", got))
	delete(secret, got)
	hidden("one packet is granted")
	d.post("treasurer", "/v1/campaigns/rain/close", `{"early":true}`).OK(t, http.StatusOK, nil)
	hidden("it is closed")
}
