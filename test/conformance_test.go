package test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// everyServer runs TestServers on each server in each topology, and compares docs/compatibility.md. make test-servers
// sets it.
var everyServer = flag.Bool("servers", false,
	"run TestServers with every server, and not only Redis from PATH on a cluster")

// topologies has the values of redis.mode, in the order of the table.
var topologies = []string{configs.Standalone, configs.Sentinel, configs.Cluster}

// On each server in each topology a deployment runs every command that uses Redis, and the durability classes are
// tested.
func TestServers(t *testing.T) {
	programs, err := testkit.RedisPrograms(t.Context())
	require.NoError(t, err)
	cells := map[string]string{}
	var mu sync.Mutex
	t.Run("all", func(t *testing.T) {
		for i, p := range programs {
			for _, mode := range topologies {
				cell := fmt.Sprint(i, mode)
				switch {
				case p.Path == "":
					cells[cell] = "not here"
				case !*everyServer && (i > 0 || mode != configs.Cluster):
					cells[cell] = "not asked for"
				default:
					cells[cell] = "fails"
					t.Run(p.Name+" "+p.Version+" "+mode, func(t *testing.T) {
						if !*everyServer {
							t.Parallel()
						}
						wholeLife(t, p, mode)
						mu.Lock()
						defer mu.Unlock()
						cells[cell] = "passes"
					})
				}
			}
		}
	})
	table := "| server | " + strings.Join(topologies, " | ") + " |\n|---|---|---|---|\n"
	for i, p := range programs {
		table += fmt.Sprintf("| %s |", strings.TrimSpace(p.Name+" "+p.Version))
		for _, mode := range topologies {
			table += " " + cells[fmt.Sprint(i, mode)] + " |"
		}
		table += "\n"
	}
	t.Logf("\n%s", table)
	if *everyServer {
		comparePage(t, table)
	}
}

// comparePage compares the table with that of docs/compatibility.md, or with -update writes it there.
func comparePage(t *testing.T, table string) {
	t.Helper()
	const path = "../docs/compatibility.md"
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	old := regexp.MustCompile(`(?m)(^\|.*\n)+`).FindString(string(text))
	require.NotEmpty(t, old)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), old, table, 1)), 0o644))
		return
	}
	require.Equal(t, old, table, "docs/compatibility.md has another table: run make test-servers UPDATE=1")
}

// life has the campaigns of a test on one server in one topology.
type life struct {
	*site
	classes map[hongbao.Durability]string // a campaign for each class, each on a different shard
	wide    string                        // a campaign over all shards, which gets a top-up
	packets map[string]int                // by campaign
}

const (
	lifePackets = 12
	lifePeople  = 16
	lifeAdded   = 6 // packets of the top-up
)

func wholeLife(t *testing.T, p testkit.RedisProgram, mode string) {
	l := &life{site: newSite(t, atRedis(t, mode, p.Path)), packets: map[string]int{}}
	l.says([]string{"init"}, "3 founded")
	l.says([]string{"doctor"}, "version")
	l.classes = map[hongbao.Durability]string{
		hongbao.DurabilityFast: l.on(0, "fast"), hongbao.DurabilityReplica: l.on(1, "replica"),
		hongbao.DurabilityFsync: l.on(2, "fsync"),
	}
	limits := "limits:\n  - {by: user, per: campaign, max: 1}\n  - {by: device, per: day, max: 9}\n"
	for class, id := range l.classes {
		l.create(id, lifePackets, class, limits)
		l.packets[id] = lifePackets
	}
	l.wide = l.on(1, "wide")
	l.create(l.wide, lifePackets, hongbao.DurabilityFast,
		fmt.Sprintf("shards: %d\nlimits: [{by: user, per: campaign, max: 1}]\n", siteShards))
	l.packets[l.wide] = lifePackets + lifeAdded
	l.grab(p)
	l.grabWide()
	l.deadLetterFirst()
	l.settle()
	l.readEverything()
	l.end()
}

// grab lets a crowd grab all packets of each campaign. A repeated grab gets the same answer. WAIT and WAITAOF are sent
// only to the server that decided.
func (l *life) grab(program testkit.RedisProgram) {
	t := l.t
	p := l.site.producer()
	// The first answer on each shard waits until the replicas and the disk know this process. The watch does the same on
	// every shard at once, so all of it is over before the calls are counted.
	for _, id := range l.classes {
		_, err := p.Grab(t.Context(), &hongbao.Grab{Campaign: id, User: user(0), RequestID: "r",
			Facts: map[string]string{"device": "d0"}})
		require.NoError(t, err)
	}
	for class, id := range l.classes {
		home := l.homeOf(id)
		before := l.waits()
		for i := range lifePeople {
			g := &hongbao.Grab{Campaign: id, User: user(i), RequestID: "r",
				Facts: map[string]string{"device": fmt.Sprint("d", i%2)}}
			first, err := p.Grab(t.Context(), g)
			require.NoError(t, err)
			again, err := p.Grab(t.Context(), g)
			require.NoError(t, err)
			if i < lifePackets {
				require.Equal(t, hongbao.OutcomeGranted, first.Outcome, "%s %d", id, i)
				require.Equal(t, first.Receipts, again.Receipts, "the same request, the same receipt")
			} else {
				require.Equal(t, []hongbao.Outcome{hongbao.OutcomeSoldOut, hongbao.OutcomeSoldOut},
					[]hongbao.Outcome{first.Outcome, again.Outcome})
			}
		}
		g := &hongbao.Grab{Campaign: id, User: user(0), RequestID: "other", Facts: map[string]string{"device": "d0"}}
		other, err := p.Grab(t.Context(), g)
		require.NoError(t, err)
		require.Equal(t, hongbao.OutcomeAlreadyGranted, other.Outcome)
		want := map[hongbao.Durability]string{hongbao.DurabilityReplica: "wait", hongbao.DurabilityFsync: "waitaof"}[class]
		if want == "waitaof" && strings.HasPrefix(program.Version, "7.0.") {
			want = "" // Redis 7.0 has no WAITAOF; the test sets appendfsync always
		}
		for at, n := range l.waits() {
			addr, command, _ := strings.Cut(at, " ")
			if addr == home && command == want {
				require.GreaterOrEqual(t, n-before[at], 2*lifePackets, "%s of %s by %s", id, at, home)
			} else {
				require.Equal(t, before[at], n, "%s was decided by %s: %s", id, home, at)
			}
		}
	}
}

// grabWide lets a crowd grab all packets of the campaign over all shards. After a top-up, refused users get some of the
// new packets, and new users get the rest. A repeated grab gets the same answer.
func (l *life) grabWide() {
	p := l.site.producer()
	answer := func(i int) hongbao.Answer {
		a, err := p.Grab(l.t.Context(), &hongbao.Grab{Campaign: l.wide, User: user(i), RequestID: "r"})
		require.NoError(l.t, err)
		return a
	}
	receipts, on := map[int][]hongbao.Receipt{}, map[int]bool{}
	grab := func(first, last, packets int) {
		for i := first; i < last; i++ {
			a := answer(i)
			if i < packets {
				require.Equal(l.t, hongbao.OutcomeGranted, a.Outcome, "%s %d", l.wide, i)
				receipts[i] = a.Receipts
				on[a.Receipts[0].Shard] = true
			} else {
				require.Equal(l.t, hongbao.OutcomeSoldOut, a.Outcome, "%s %d", l.wide, i)
			}
		}
	}
	grab(0, lifePeople, lifePackets)
	l.ok("campaign", "top-up", l.wide, "--packets", fmt.Sprint(lifeAdded), "--total", fmt.Sprint(200*lifeAdded),
		"--expect", fmt.Sprint(200*lifePackets), "--id", "more", "--by", "ann", "--why", "a test")
	grab(lifePackets, lifePackets+lifePeople, lifePackets+lifeAdded)
	require.Len(l.t, on, siteShards, "each shard has granted")
	for i, want := range receipts {
		require.Equal(l.t, want, answer(i).Receipts, "the same request, the same receipt")
	}
}

// homeOf returns the address of the primary that has a campaign.
func (l *life) homeOf(campaign string) string {
	l.t.Helper()
	if l.at.cluster == nil {
		return l.at.primaries[0].Addr
	}
	return l.primaryOf(l.store.Home(campaign).Index()).Addr
}

// waits returns the numbers of WAIT and WAITAOF calls on each primary.
func (l *life) waits() map[string]int {
	l.t.Helper()
	all := map[string]int{}
	for _, server := range l.at.primaries {
		stats := server.Order(l.t, "INFO commandstats")
		for _, command := range []string{"wait", "waitaof"} {
			n := 0
			if m := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+)`).FindStringSubmatch(stats); m != nil {
				n, _ = strconv.Atoi(m[1])
			}
			all[server.Addr+" "+command] = n
		}
	}
	return all
}

// deadLetterFirst turns the first grant of campaign fast into a dead letter of each sink.
func (l *life) deadLetterFirst() {
	t, id := l.t, l.classes[hongbao.DurabilityFast]
	k := l.store.Home(id)
	for _, sink := range []string{configs.SinkBalance, configs.SinkKafka} {
		_, err := k.Group(sink).Create(t.Context())
		require.NoError(t, err)
		entries, err := k.Entries(t.Context(), "-", "+")
		require.NoError(t, err)
		_, err = k.Group(sink).ReadNew(t.Context(), "digger", 1, 0)
		require.NoError(t, err)
		written, err := k.DeadLetter(t.Context(), store.Letter{
			Group: sink, Consumer: "digger", EntryID: entries[0].ID, Grant: &entries[0].Grants[0],
			Last: len(entries[0].Grants) == 1, Class: hongbao.ClassPermanent, Reason: "a test", Attempts: 1,
		})
		require.NoError(t, err)
		require.True(t, written)
	}
}

// settle starts a worker while a sink is paused, resumes the sink and requeues the dead letters. Then it checks that
// the ledger and the topic have every grant.
func (l *life) settle() {
	why := []string{"--by", "ann", "--why", "a test"}
	l.ok(append([]string{"sink", "pause", "kafka"}, why...)...)
	stop := l.work()
	defer stop()
	l.says([]string{"sink", "list"}, "paused")
	l.exits(3, []string{"audit", "--wait", "1s"})
	l.ok(append([]string{"sink", "limit", "kafka", "--rate", "100000"}, why...)...)
	l.ok(append([]string{"sink", "resume", "kafka"}, why...)...)
	l.ok(append([]string{"sink", "limit", "kafka", "--by-knob"}, why...)...)
	var dead struct{ Letters []json.RawMessage }
	require.NoError(l.t, json.Unmarshal([]byte(l.ok("dead", "list", "--json")), &dead))
	require.Len(l.t, dead.Letters, 2)
	l.ok(append([]string{"dead", "requeue", "--class", "permanent", "--expect", "2"}, why...)...)
	l.allAgree()
	for id, packets := range l.packets {
		require.Equal(l.t, packets, l.published(id))
	}
}

// readEverything runs every read-only command, and a replay to another topic.
func (l *life) readEverything() {
	all := 0
	for id, packets := range l.packets {
		all += packets
		l.says([]string{"receipts", id, user(1), "--json"}, `"source":"redis"`)
		l.says([]string{"campaign", "show", id}, id)
		l.says([]string{"grab", id, user(1), "--fact", "device=d1"}, "already_granted")
	}
	l.says([]string{"campaign", "list"}, "sold_out")
	l.says([]string{"status"}, "balance", "kafka")
	l.says([]string{"recover"}, "open")
	l.says([]string{"doctor"}, "version")
	l.ok("journal")
	l.ok("quarantine", "list")
	l.ok("export", "--day", "2026-01-01", "--dir", l.t.TempDir())
	fresh := testkit.Kafka(l.t).Topic(l.t, 2, nil)
	l.ok("replay", "copy", "--to", "topic:"+fresh)
	require.Len(l.t, strings.Split(strings.TrimSpace(l.ok("tail", "--kafka.topic", fresh)), "\n"), all)
	l.says([]string{"init"}, "3 founded before")
}

// end pauses, resumes, closes and refunds each campaign, and retires it from Redis.
func (l *life) end() {
	for id, packets := range l.packets {
		l.ok("campaign", "pause", id, "--by", "ann", "--why", "test")
		l.ok("campaign", "resume", id, "--by", "ann", "--why", "test")
		l.says([]string{"campaign", "close", id, "--early"}, fmt.Sprintf("granted %d packets", packets))
		l.says([]string{"grab", id, user(20), "--fact", "device=d1"}, "ended")
	}
	stop := l.work()
	for id := range l.packets {
		l.says([]string{"campaign", "refund", id, "--amount", "0", "--wait", "30s"}, "refunded")
		l.says([]string{"campaign", "reveal", id}, "seed")
	}
	l.allAgree()
	stop()
	l.env = append(l.env, "HONGBAO_CAMPAIGN_GRACE=0s")
	stop = l.work()
	defer stop()
	for id := range l.packets {
		for _, k := range l.places(id) {
			testkit.Eventually(l.t, startTime, func() bool {
				n, err := l.rdb.Exists(context.Background(), k.Keys.Campaign(id), k.Keys.Receipts(id)).Result()
				return err == nil && n == 0
			}, "%s has left shard %d", id, k.Index())
		}
		l.says([]string{"receipts", id, user(1), "--json"}, `"source":"ledger"`)
	}
}

// places returns the shards over which a campaign is spread.
func (l *life) places(id string) []store.Place {
	if id == l.wide {
		return l.store.Places(id, siteShards)
	}
	return l.store.Places(id, 1)
}
