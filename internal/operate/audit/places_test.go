package audit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/load"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
)

// plantedOnPlaces has differences that only a campaign on several shards can have.
var plantedOnPlaces = map[string]struct {
	plant func(*testing.T, *world)
	want  map[model.DifferenceKind]int64
	says  string
}{
	"a packet moved to another shard": {
		func(t *testing.T, w *world) {
			packet, err := w.rdb.RPop(t.Context(), w.keys("a").Keys.Stock("a")).Result()
			require.NoError(t, err)
			do(t, w.rdb.RPush(t.Context(), w.other("a").Keys.Stock("a"), packet))
		},
		kinds(audit.PacketUnknown), "packet 99 (stock): it is on place 1 of 2, but was dealt to place 0",
	},
	"a user who has a packet on each shard": {
		func(t *testing.T, w *world) {
			storetest.Grab(t, w.other("a"), "a", "u0003") // a grab checks the limit on its own shard only
			w.settle(t)
			w.publish(t)
		},
		kinds(audit.OverHold), `user "u0003" has more than the 1 packets that are allowed, over its 2 shards`,
	},
	"a shard that has lost the campaign": {
		func(t *testing.T, w *world) {
			k := w.other("a")
			do(t, w.rdb.Del(t.Context(), k.Keys.Campaign("a"), k.Keys.Stock("a"), k.Keys.Receipts("a")))
		},
		kinds(audit.CampaignMissing), "it is dealt over 2 shards, and shard",
	},
	"a home that has lost the campaign": {
		func(t *testing.T, w *world) {
			k := w.keys("a")
			do(t, w.rdb.Del(t.Context(), k.Keys.Campaign("a"), k.Keys.Stock("a"), k.Keys.Receipts("a")))
		},
		kinds(audit.CampaignMissing), "it is dealt over 2 shards, and shard",
	},
	"a stub where a shard has lost the campaign": {
		func(t *testing.T, w *world) {
			k := w.other("a")
			do(t, w.rdb.Del(t.Context(), k.Keys.Campaign("a"), k.Keys.Stock("a"), k.Keys.Receipts("a")))
			do(t, w.rdb.HSet(t.Context(), k.Keys.Campaign("a"), "state", store.StateFrozen, "packets", 0, "total", 0, "loaded", 0,
				"loaded_amount", 0, "granted", 0, "granted_amount", 0, "user_campaign", 1, "from", 0))
		},
		kinds(audit.CampaignFrozen), "left it frozen on shard",
	},
	"two shards with wrong counts whose sum is right": {
		func(t *testing.T, w *world) {
			do(t, w.rdb.HIncrBy(t.Context(), w.keys("a").Keys.Campaign("a"), "loaded", 1))
			do(t, w.rdb.HIncrBy(t.Context(), w.other("a").Keys.Campaign("a"), "loaded", -1))
		},
		map[model.DifferenceKind]int64{audit.CounterDrift: 2}, "50 packets, but granted",
	},
	"shares that do not add up to all packets": {
		func(t *testing.T, w *world) {
			k := w.other("a")
			for _, field := range []string{"loaded", "share"} {
				do(t, w.rdb.HIncrBy(t.Context(), k.Keys.Campaign("a"), field, -1))
			}
			last, err := w.rdb.RPop(t.Context(), k.Keys.Stock("a")).Result()
			require.NoError(t, err)
			number, amount, _ := strings.Cut(last, " ")
			require.Equal(t, "100", number)
			for _, field := range []string{"loaded_amount", "share_amount"} {
				do(t, w.rdb.Do(t.Context(), "HINCRBY", k.Keys.Campaign("a"), field, "-"+amount))
			}
		},
		kinds(audit.PacketMissing, audit.CounterDrift), "100 packets, but its 2 shards of 2 should get 99",
	},
	"a refunded campaign that is open on one shard": {
		func(t *testing.T, w *world) {
			e, err := w.keys("a").Place("a").Close(t.Context(), true, 0)
			require.NoError(t, err)
			w.settle(t)
			w.publish(t)
			w.ledger.closed["a"] = e
		},
		kinds(audit.FundingDiffers), `the ledger has refunded it, but in Redis it is "open" on shard`,
	},
}

func TestPlantedOnPlaces(t *testing.T) {
	t.Parallel()
	for name, p := range plantedOnPlaces {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := busyOn(t, 2)
			p.plant(t, w)
			r := w.audit(t, audit.Options{})
			require.Equal(t, p.want, r.Found, "%+v", r.Differences)
			var lines []string
			for i := range r.Differences {
				lines = append(lines, r.Differences[i].String())
			}
			require.Contains(t, strings.Join(lines, "\n"), p.says)
		})
	}
}

// Redis has lost the packets of two top-ups, which are dealt again one after the other.
func TestAuditWhileTopUpsAreDealtAgain(t *testing.T) {
	t.Parallel()
	w := busyOn(t, 1)
	funded, earlier := hongbao.Amount(total+7*11+7*3), []hongbao.Amount{total, total + 7*11}
	w.ledger.spoil = func(c *books.Totals) {
		if c.Campaign == "a" {
			c.Pool, c.Funded, c.Earlier = c.Pool+funded-total, funded, earlier
		}
	}
	require.Equal(t, model.Agrees, w.audit(t, audit.Options{}).Verdict, "Redis lacks both")
	earlier = earlier[1:]
	require.Equal(t, model.Differs, w.audit(t, audit.Options{}).Verdict, "the first is dealt, but not in Redis")
	home := w.keys("a").Keys.Campaign("a")
	hash, err := w.rdb.HGet(t.Context(), home, "hash").Result()
	require.NoError(t, err)
	loaded, err := w.rdb.HGet(t.Context(), home, "loaded_amount").Int64()
	require.NoError(t, err)
	earlier = []hongbao.Amount{total, total + 7*11}
	require.NoError(t, w.keys("a").Announce(t.Context(), &store.Announcement{Campaign: "a", Hash: hash, Generation: 2,
		Plan: "two", Packets: packets + 11, Total: total + 7*11, Share: packets + 11,
		ShareAmount: hongbao.Amount(loaded + 7*11)}))
	require.Equal(t, model.Agrees, w.audit(t, audit.Options{}).Verdict, "Redis has one of them")
}

// A top-up is announced and dealt place by place. The audit finds no difference after any step.
func TestAuditWhileATopUpIsDealt(t *testing.T) {
	t.Parallel()
	for places := 1; places <= 2; places++ {
		w := busyOn(t, places)
		const added = 11
		agrees := func(step string) {
			t.Helper()
			r := w.audit(t, audit.Options{})
			require.Equal(t, model.Agrees, r.Verdict, "%d shards, %s: %+v", places, step, r.Differences)
			c := r.Campaigns[slices.IndexFunc(r.Campaigns, func(c model.CampaignReport) bool { return c.Campaign == "a" })]
			require.Equal(t, c.Funded, c.GrantedAmount+c.LeftAmount, "%s: the growth would be the amount of a packet", step)
		}
		hash, err := w.rdb.HGet(t.Context(), w.keys("a").Keys.Campaign("a"), "hash").Result()
		require.NoError(t, err)
		funded, earlier := hongbao.Amount(total), []hongbao.Amount(nil)
		w.ledger.spoil = func(c *books.Totals) {
			if c.Campaign == "a" {
				c.Pool, c.Funded, c.Earlier = c.Pool+funded-total, funded, earlier
			}
		}
		list := w.store.Places("a", places)
		share := func(j int) int64 { return int64(len(load.Deal(make([]hongbao.Amount, packets+added), places, j))) }
		funded += added * 7
		earlier = []hongbao.Amount{total}
		agrees("the ledger has the top-up")
		for j, k := range list {
			first, err := w.rdb.HGet(t.Context(), k.Keys.Campaign("a"), "loaded_amount").Int64()
			require.NoError(t, err)
			got, err := w.rdb.HGet(t.Context(), k.Keys.Campaign("a"), "loaded").Int64()
			require.NoError(t, err)
			require.NoError(t, k.Announce(t.Context(), &store.Announcement{Campaign: "a", Hash: hash,
				Generation: 2, Plan: "two", Packets: packets + added, Total: funded, Share: share(j),
				ShareAmount: hongbao.Amount(first + (share(j)-got)*7)}))
			agrees(fmt.Sprintf("announced on place %d", j))
		}
		for j, k := range list {
			got := int64(len(load.Deal(make([]hongbao.Amount, packets), places, j)))
			for ; got < share(j); got++ {
				_, err := k.LoadChunk(t.Context(), &store.Chunk{Campaign: "a", Hash: hash, Generation: 2,
					Before: got, First: int64(j) + 1 + got*int64(places), Amounts: []hongbao.Amount{7}})
				require.NoError(t, err)
				agrees(fmt.Sprintf("%d packets on place %d", got+1, j))
			}
		}
		earlier = nil
		agrees("all is dealt")
		do(t, w.rdb.RPop(t.Context(), list[0].Keys.StockOf("a", 2)))
		r := w.audit(t, audit.Options{})
		require.Equal(t, kinds(audit.PacketMissing), r.Found, "%+v", r.Differences)
	}
}
