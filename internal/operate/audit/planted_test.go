package audit_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// planted has changes to a world in which everything agrees. After each change the audit must find exactly want.
var planted = map[string]struct {
	plant func(*testing.T, *world)
	want  map[model.DifferenceKind]int64
	says  string // part of the text of one difference
}{
	"a grant removed from the ledger": {
		func(_ *testing.T, w *world) { drop(w.ledger.grants, "a", "u0003") },
		kinds(audit.Lost), `user "u0003"`,
	},
	"an amount altered in the ledger": {
		func(_ *testing.T, w *world) { w.settled("a", "u0003").Amount++ },
		kinds(audit.Different), `(ledger): the ledger has user "u0003"`,
	},
	"a user altered in the ledger": {
		func(_ *testing.T, w *world) { w.settled("a", "u0003").User = "mallory" },
		kinds(audit.Different), `the receipts have user "u0003"`,
	},
	"a grant credited twice": {
		func(_ *testing.T, w *world) { again(w.ledger.grants, "b", "u0003") },
		kinds(audit.DoubleCredit), "campaign b packet",
	},
	"a credit without a grant": {
		func(_ *testing.T, w *world) {
			g := *w.settled("a", "u0003")
			g.Packet, g.Seq, g.User = packets, 1_000, "mallory"
			w.ledger.grants["a"] = append(w.ledger.grants["a"], g)
		},
		kinds(audit.Unfounded), "(ledger)",
	},
	"a credit on a shard that does not exist": {
		func(_ *testing.T, w *world) {
			w.ledger.grants["b"] = append(w.ledger.grants["b"],
				hongbao.Grant{Shard: 9, Seq: 1, Campaign: "b", Packet: 99, User: "mallory"})
		},
		kinds(audit.Unfounded), "mallory",
	},
	"a duplicate in the topic": {
		func(_ *testing.T, w *world) { w.topic.grants = append(w.topic.grants, *w.published("a", "u0003")) },
		kinds(audit.DuplicateInTopic), "(topic)",
	},
	"a grant missing in the topic": {
		func(_ *testing.T, w *world) {
			w.topic.grants = slices.DeleteFunc(w.topic.grants,
				func(g hongbao.Grant) bool { return g.Campaign == "b" && g.User == "u0003" })
		},
		kinds(audit.MissingInTopic), `user "u0003"`,
	},
	"an amount altered in the topic": {
		func(_ *testing.T, w *world) { w.published("a", "u0003").Amount++ },
		kinds(audit.Different), "(topic)",
	},
	"malformed records": {
		func(_ *testing.T, w *world) {
			w.topic.scan = audit.TopicScan{Malformed: 2, FirstMalformed: errors.New("offset 7\nforged line")}
		},
		kinds(audit.MalformedRecord), `offset 7\nforged line`,
	},
	"a granted packet put back into the stock": {
		func(t *testing.T, w *world) {
			g := w.settled("a", "u0003")
			do(t, w.rdb.RPush(t.Context(), w.keys("a").Keys.Stock("a"), fmt.Sprintf("%d %d", g.Packet, g.Amount)))
		},
		kinds(audit.PacketTwice), "in the stock and was granted",
	},
	"a packet twice in the stock": {
		func(t *testing.T, w *world) {
			last, err := w.rdb.LIndex(t.Context(), w.keys("a").Keys.Stock("a"), -1).Result()
			require.NoError(t, err)
			do(t, w.rdb.RPush(t.Context(), w.keys("a").Keys.Stock("a"), last))
		},
		kinds(audit.PacketTwice), "the stock has it twice",
	},
	"a packet vanished from the stock": {
		func(t *testing.T, w *world) { do(t, w.rdb.RPop(t.Context(), w.keys("a").Keys.Stock("a"))) },
		kinds(audit.PacketMissing), "packet 100",
	},
	"a packet that the campaign does not have": {
		func(t *testing.T, w *world) { do(t, w.rdb.LSet(t.Context(), w.keys("a").Keys.Stock("a"), -1, "101 5")) },
		kinds(audit.PacketUnknown, audit.PacketMissing), "the stock has packet 101; want",
	},
	"one packet in two receipts": {
		func(t *testing.T, w *world) {
			do(t, w.rdb.HSet(t.Context(), w.keys("a").Keys.Receipts("a"), "u9999", w.receipt(t, "a", "u0003")))
		},
		kinds(audit.PacketTwice), "granted twice",
	},
	"one packet that Redis has dealt twice": { // no seq lacks its event
		func(t *testing.T, w *world) {
			g := w.settled("a", "u0003")
			do(t, w.rdb.LPush(t.Context(), w.keys("a").Keys.Stock("a"), fmt.Sprintf("%d %d", g.Packet, g.Amount)))
			w.grab(t, "a", 9000, 1)
		},
		kinds(audit.PacketTwice, audit.Different, audit.StreamGap), "granted twice",
	},
	"seqs without an event": {
		func(t *testing.T, w *world) { do(t, w.rdb.HIncrBy(t.Context(), w.keys("a").Keys.Meta(), "seq", 3)) },
		kinds(audit.SeqGap), "no receipt, entry, ledger or topic has seqs",
	},
	"a shard's seq set back": {
		func(t *testing.T, w *world) { do(t, w.rdb.HIncrBy(t.Context(), w.keys("a").Keys.Meta(), "seq", -1)) },
		kinds(audit.SeqBeyond), "the shard's last seq is",
	},
	"one seq for two grants": {
		func(t *testing.T, w *world) { w.forge(t, 1) },
		kinds(audit.DuplicateSeq, audit.Lost, audit.MissingInTopic), "another grant has this seq too",
	},
	"an entry written by hand": {
		func(t *testing.T, w *world) {
			w.addEntry(t, "100 7 mallory - -", 1_000)
		},
		kinds(audit.Unfounded), "(stream): no receipt has it",
	},
	"an entry written again": {
		func(t *testing.T, w *world) {
			g := w.settled("a", "u0003")
			w.addEntry(t, store.GrantLine(g), g.Seq)
		},
		kinds(audit.StreamGap), "once more",
	},
	"an entry altered": {
		func(t *testing.T, w *world) {
			list, err := w.keys("a").Range(t.Context(), "-", "+", 10)
			require.NoError(t, err)
			k, last := w.keys("a").Keys.Events(), list[len(list)-1]
			do(t, w.rdb.XDel(t.Context(), k, last.ID))
			last.Values[1] = strings.Replace(last.Values[1], "u0109", "mallory", 1)
			do(t, w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: k, Values: last.Values}))
		},
		kinds(audit.Different), `the stream has user "mallory"`,
	},
	"a second entry with an old seq, for an ungranted packet": {
		func(t *testing.T, w *world) { w.addEntry(t, "100 7 mallory - -", w.settled("a", "u0003").Seq) },
		kinds(audit.Unfounded), "(stream): no receipt has it",
	},
	"a second entry with an old seq, for the same packet and another user": {
		func(t *testing.T, w *world) {
			g := *w.settled("a", "u0003")
			g.User = "mallory"
			w.addEntry(t, store.GrantLine(&g), g.Seq)
		},
		kinds(audit.Different, audit.StreamGap), `user "mallory"`,
	},
	"a second entry with an old seq, which ledger and topic have instead of the first": {
		func(t *testing.T, w *world) {
			g := *w.settled("a", "u0003")
			g.Packet, g.User = packets, "mallory"
			w.addEntry(t, store.GrantLine(&g), g.Seq)
			*w.settled("a", "u0003"), *w.published("a", "u0003") = g, g
		},
		kinds(audit.Lost, audit.MissingInTopic, audit.Unfounded), `(stream, ledger, topic): no receipt has it`,
	},
	"a close with an old seq": {
		func(t *testing.T, w *world) {
			do(t, w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: w.keys("a").Keys.Events(), Values: testkit.Entry("close", "a",
				w.settled("a", "u0109").Seq, 1, 1700000000000, "40 400 60 600")}))
		},
		kinds(audit.CampaignBroken), `the stream has the close of the campaign, but its state is "open"`,
	},
	"a dead letter of a whole entry": {
		func(t *testing.T, w *world) {
			id, err := w.rdb.XAdd(t.Context(),
				&redis.XAddArgs{Stream: w.keys("a").Keys.Events(), Values: []string{"x", "1"}}).Result()
			require.NoError(t, err)
			_, err = w.keys("a").Group(topicGroup).ReadNew(t.Context(), "w1", 10, 0)
			require.NoError(t, err)
			_, err = w.keys("a").DeadLetter(t.Context(), store.Letter{
				Group: topicGroup, Consumer: "w1", EntryID: id, Last: true, Class: hongbao.ClassPermanent, Reason: "no field v",
				Attempts: 1,
			})
			require.NoError(t, err)
			do(t, w.rdb.XDel(t.Context(), w.keys("a").Keys.Events(), id))
		},
		kinds(audit.DeadLetter), "the whole entry",
	},
	"a receipt deleted": {
		func(t *testing.T, w *world) { do(t, w.rdb.HDel(t.Context(), w.keys("a").Keys.Receipts("a"), "u0003")) },
		kinds(audit.Unfounded), "(stream, ledger, topic): no receipt has it",
	},
	"a receipt altered": {
		func(t *testing.T, w *world) {
			text := w.receipt(t, "a", "u0003")
			f := strings.SplitN(text, " ", 3)
			do(t, w.rdb.HSet(t.Context(), w.keys("a").Keys.Receipts("a"), "u0003", f[0]+" 1000000 "+f[2]))
		},
		map[model.DifferenceKind]int64{audit.Different: 3}, `user "u0003", amount 1000000`,
	},
	"a receipt that can't be read": {
		func(t *testing.T, w *world) {
			do(t, w.rdb.HSet(t.Context(), w.keys("a").Keys.Receipts("a"), "u9999", "one two"))
		},
		kinds(audit.CampaignBroken), "u9999",
	},
	"more packets than a user may have": {
		func(t *testing.T, w *world) {
			k := w.keys("a").Keys.Receipts("a")
			do(t, w.rdb.HSet(t.Context(), k, "u0003", w.receipt(t, "a", "u0003")+"\n"+w.receipt(t, "a", "u0004")))
			do(t, w.rdb.HDel(t.Context(), k, "u0004"))
		},
		map[model.DifferenceKind]int64{audit.OverHold: 1, audit.Different: 3}, "",
	},
	"a loaded count that is too high": {
		func(t *testing.T, w *world) {
			do(t, w.rdb.HIncrBy(t.Context(), w.keys("a").Keys.Campaign("a"), "loaded", 1))
		},
		kinds(audit.CounterDrift), "100 packets, but granted 41 + left 60",
	},
	"a loaded amount that is too high": {
		func(t *testing.T, w *world) {
			do(t, w.rdb.HIncrBy(t.Context(), w.keys("a").Keys.Campaign("a"), "loaded_amount", 1))
		},
		kinds(audit.CounterDrift), "but granted",
	},
	"a stock amount that was not planned": {
		func(t *testing.T, w *world) {
			w.cfg.Plan = w.plans
			last, err := w.rdb.LIndex(t.Context(), w.keys("a").Keys.Stock("a"), -1).Result()
			require.NoError(t, err)
			number, _, _ := strings.Cut(last, " ")
			do(t, w.rdb.LSet(t.Context(), w.keys("a").Keys.Stock("a"), -1, number+" 4999"))
		},
		kinds(audit.NotPlanned), "(stock): the stock has another amount than the plan",
	},
	"a dead letter": {
		func(t *testing.T, w *world) { w.deadLetter(t, "the account is closed\nforged") },
		kinds(audit.DeadLetter), `permanent after 1 attempts: "the account is closed\nforged"`,
	},
	"a grant in quarantine": {
		func(_ *testing.T, w *world) {
			g := *w.settled("a", "u0003")
			drop(w.ledger.grants, "a", "u0003")
			w.ledger.quarantined = []model.Quarantined{{ID: 7, Reason: "amount_not_planned", Grant: g}}
		},
		kinds(audit.InQuarantine), "quarantine 7, amount_not_planned",
	},
	"an entry that can't be read": {
		func(t *testing.T, w *world) {
			do(t, w.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: w.keys("a").Keys.Events(), Values: []string{"amount", "1e9"}}))
		},
		kinds(audit.UnreadableEntry), "can't be read",
	},
	"an entry deleted from the stream before it was finished": {
		func(t *testing.T, w *world) { w.hole(t) },
		kinds(audit.StreamGap), "are not in the stream, and group balance has not finished them",
	},
	"a claim that no worker will finish": {
		func(t *testing.T, w *world) {
			do(t, w.rdb.HSet(t.Context(), w.keys("a").Keys.Claims(topicGroup), "c1", "1 1000 w1\n1-5\npayload", "#fence", "1"))
		},
		kinds(audit.OpenClaim), `"c1"`,
	},
	"a group that vanished": {
		func(t *testing.T, w *world) {
			do(t, w.rdb.XGroupDestroy(t.Context(), w.keys("a").Keys.Events(), topicGroup))
		},
		kinds(audit.GroupMissing), "no consumer group kafka",
	},
	"a campaign's hash that vanished": {
		func(t *testing.T, w *world) { do(t, w.rdb.Del(t.Context(), w.keys("b").Keys.Campaign("b"))) },
		kinds(audit.CampaignBroken), "the campaign's hash is missing",
	},
	"a campaign that vanished": {
		func(t *testing.T, w *world) {
			k := w.keys("b")
			do(t, w.rdb.Del(t.Context(), k.Keys.Campaign("b"), k.Keys.Stock("b"), k.Keys.LoadedTotals("b", 1), k.Keys.Receipts("b"),
				k.Keys.Counters("b", "c")))
		},
		kinds(audit.CampaignMissing), "has settled 20 of its grants",
	},
	"a campaign that the ledger does not have": {
		func(t *testing.T, w *world) {
			w.load(t, "c")
			delete(w.ledger.grants, "c")
			delete(w.plans, "c")
			w.cfg.Plan = w.plans
		},
		kinds(audit.CampaignMissing), "campaign c (ledger)",
	},
	"a campaign that the ledger funded with another amount": {
		func(_ *testing.T, w *world) {
			w.ledger.spoil = func(c *books.Totals) {
				if c.Campaign == "a" {
					c.Funded, c.Pool = c.Funded+1, c.Pool+1
				}
			}
		},
		kinds(audit.FundingDiffers), "campaign a",
	},
	"a pool that does not match the ledger's counters": {
		func(_ *testing.T, w *world) {
			w.ledger.spoil = func(c *books.Totals) {
				if c.Campaign == "a" {
					c.Pool--
				}
			}
		},
		kinds(audit.LedgerUnbalanced), "funded 5000",
	},
	"a problem that the ledger's own checks report": {
		func(_ *testing.T, w *world) {
			w.ledger.problems = []books.Difference{{Where: "CNY", What: "sum of all accounts = 0", Got: 1}}
		},
		kinds(audit.LedgerUnbalanced), "got 1",
	},
}

// saidOnTwo has other texts for some cases: those that the audit reports if the campaigns are dealt over two shards.
var saidOnTwo = map[string]string{
	"a campaign that vanished":         "it is dealt over 2 shards, and shard 1 does not have it",
	"a loaded count that is too high":  "(campaign on shard 0): 50 packets, but granted",
	"a packet vanished from the stock": "packet 99",
}

// Each change is planted twice: on a campaign on one shard, and at the home of a campaign on two shards.
func TestPlanted(t *testing.T) {
	t.Parallel()
	for name, p := range planted {
		for places := 1; places <= 2; places++ {
			t.Run(fmt.Sprintf("%s, %d shards", name, places), func(t *testing.T) {
				t.Parallel()
				w := busyOn(t, places)
				p.plant(t, w)
				r := w.audit(t, audit.Options{})
				require.Equal(t, p.want, r.Found, "%+v", r.Differences)
				require.Equal(t, model.Differs, r.Verdict)
				said, says := false, p.says
				if on := saidOnTwo[name]; places == 2 && on != "" {
					says = on
				}
				for i := range r.Differences {
					line := r.Differences[i].String()
					require.NotContains(t, line, "\n")
					said = said || strings.Contains(line, says)
				}
				require.True(t, said, "no difference contains %q: %+v", says, r.Differences)
			})
		}
	}
}

func kinds(list ...model.DifferenceKind) map[model.DifferenceKind]int64 {
	m := map[model.DifferenceKind]int64{}
	for _, k := range list {
		m[k]++
	}
	return m
}

// A row was deleted from the ledger by hand, but the user's balance keeps the credit. The report suggests no replay,
// which would credit the user again.
func TestDeletedLedgerRowIsNotReplayed(t *testing.T) {
	t.Parallel()
	w := busy(t)
	drop(w.ledger.grants, "a", "u0003")
	text := func() string {
		var b strings.Builder
		require.NoError(t, w.audit(t, audit.Options{}).Write(&b))
		return b.String()
	}
	require.Contains(t, text(), "hongbao replay", "the ledger agrees with itself, so it never paid the grant")
	w.ledger.problems = []books.Difference{{Where: "campaign a", What: "sum of the grants = granted", Want: 2000, Got: 1950}}
	require.Contains(t, text(), "\nlost: 1.")
	require.NotContains(t, text(), "hongbao replay")
}

// After an accepted loss a worker may publish a grant twice. The remedy for a duplicate names this likely cause.
func TestDuplicateInTheTopicNamesTheAcceptedLoss(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.topic.grants = append(w.topic.grants, *w.published("a", "u0003"))
	var b strings.Builder
	require.NoError(t, w.audit(t, audit.Options{}).Write(&b))
	require.Contains(t, b.String(), "an accepted loss (`recover --accept-loss`)")
}
