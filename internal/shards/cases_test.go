package shards_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/campaigns"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/shards/shardstest"
	"github.com/hongbao-project/hongbao/internal/stream"
)

// scriptCase is one script in a state in which it would write.
type scriptCase struct {
	keys func(b *bundle) []string
	prep func(t *testing.T, b *bundle)
	call func(ctx context.Context, b *bundle) error
	// grows: refused when Redis is out of memory. The others end work or free memory and go on.
	grows bool
	// ages: the reply has times that pass, so two calls never answer the same.
	ages bool
}

var ranges = []stream.SeqRange{{First: 1, Last: 2}, {First: shards.ChunkEvents - 1, Last: shards.ChunkEvents}}

func claimCall(id, owner string) *shards.ClaimCall {
	return &shards.ClaimCall{Sink: "kafka", ID: id, Owner: owner, Lease: time.Minute, Events: ranges, Payload: "p"}
}

func (b *bundle) doneKeys(first ...string) []string {
	return append(first, b.k.Done("kafka", 0), b.k.Done("kafka", 1))
}

// pending leaves two entries with worker w1 of group kafka.
func pending(t *testing.T, b *bundle) {
	b.events(t, "rain", 2, 1)
	b.group(t, "kafka")
	require.Len(t, b.read(t, "kafka", "w1", 10), 2)
}

// deadLetter leaves one dead letter of group kafka, of seq 3.
func deadLetter(t *testing.T, b *bundle) {
	pending(t, b)
	written, err := shards.Of(b.rdb, b.k).DeadLetter(t.Context(), shards.Letter{
		Group: "kafka", Consumer: "w1", EntryID: b.id(t.Context(), 1), Last: true, Class: hongbao.ClassPermanent,
		Reason: "too large", Attempts: 3,
		Grant: &hongbao.Grant{Seq: 3, Packet: 3, Amount: 1, User: "u3"},
	})
	require.NoError(t, err)
	require.True(t, written)
}

func claimed(t *testing.T, b *bundle) {
	reachedRanges(t, b)
	_, err := shards.Of(b.rdb, b.k).Claim(t.Context(), claimCall("c1", "w1"))
	require.NoError(t, err)
}

func reachedRanges(t *testing.T, b *bundle) { b.reached(t, 2*shards.ChunkEvents) }

func events(b *bundle) []string { return []string{b.k.Events()} }
func claims(b *bundle) []string { return []string{b.k.Claims("kafka")} }

func begin(ctx context.Context, b *bundle) error {
	_, err := shards.Of(b.rdb, b.k).CreateCampaign(ctx, &shards.CampaignCall{Campaign: "rain", Hash: "h", Fields: []string{
		"from", "1", "to", "9", "user_campaign", "1", "packets", "2", "total", "6",
	}})
	return err
}

func chunk(ctx context.Context, b *bundle) error {
	_, err := shards.Of(b.rdb, b.k).LoadChunk(ctx,
		&shards.Chunk{Campaign: "rain", Hash: "h", First: 1, Amounts: []hongbao.Amount{2, 4}})
	return err
}

func putCodes(ctx context.Context, b *bundle) error {
	_, err := shards.Of(b.rdb, b.k).PutCodes(ctx,
		&shards.CodesChunk{Campaign: "rain", Hash: "h", First: 1, Codes: []string{"A1", "B2"}})
	return err
}

// keep notes that the ledger has every decision of the shard.
func keep(ctx context.Context, b *bundle) error {
	all, errs := shards.NewControls(ctx, b.rdb, b.layout)
	if errs[b.k.Index()] != nil {
		return errs[b.k.Index()]
	}
	for i := range all[b.k.Index()] {
		if err := shards.Of(b.rdb, b.k).ControlKept(ctx, &all[b.k.Index()][i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *bundle) id(ctx context.Context, at int) string {
	rows, err := b.rdb.XRange(ctx, b.k.Events(), "-", "+").Result()
	if err != nil || at >= len(rows) {
		return "1-1" // the stream holds another type
	}
	return rows[at].ID
}

// scriptCases are all scripts, each under its name.
func scriptCases() map[string]scriptCase {
	all := map[string]scriptCase{}
	for _, some := range []map[string]scriptCase{grabCases(), shardCases(), loadCases(), endCases(), pendingCases(),
		keepCases(), claimCases(), controlCases()} {
		maps.Copy(all, some)
	}
	return all
}

// grabCases is the grab.
func grabCases() map[string]scriptCase {
	grab := func() *shards.GrabCall {
		c := call("rain", "u1", "u2/r2")
		c.FactNames = "device"
		for _, g := range c.Grabs {
			g.Facts = map[string]string{"device": "d"}
		}
		return c
	}
	return map[string]scriptCase{
		"receipts": {
			keys: func(b *bundle) []string { return []string{b.k.Campaign("rain"), b.k.Receipts("rain")} },
			prep: func(t *testing.T, b *bundle) {
				b.load(t, spec("rain", 5))
				b.grab(t, "rain", "u1")
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := shards.Of(b.rdb, b.k).Receipts(ctx, "rain", call("rain", "u1", "u2").Grabs, nil)
				return err
			},
		},
		"winners": {
			keys: func(b *bundle) []string {
				return []string{b.k.Campaign("rain"), b.k.Receipts("rain"), b.k.Stock("rain")}
			},
			prep: emptied,
			call: func(ctx context.Context, b *bundle) error {
				return shards.Of(b.rdb, b.k).Winners(ctx, "rain", b.revision(ctx), func(string) {})
			},
		},
		"put_filter": {
			grows: true,
			keys:  func(b *bundle) []string { return []string{b.k.Campaign("rain"), b.k.Filter("rain")} },
			prep:  emptied,
			call: func(ctx context.Context, b *bundle) error {
				return shards.Of(b.rdb, b.k).PutFilter(ctx, filterPart(b.revision(ctx), "0", "x"))
			},
		},
		"grab": {
			grows: true,
			keys: func(b *bundle) []string {
				return []string{b.k.Meta(), b.k.Events(), b.k.Campaign("rain"), b.k.Stock("rain"), b.k.Receipts("rain"),
					b.k.Counters("rain", dayOf(spec("rain", 5))), b.k.Counters("rain", "c")}
			},
			prep: func(t *testing.T, b *bundle) {
				c := spec("rain", 5)
				c.Limits = append(c.Limits, hongbao.Limit{By: "device", Per: hongbao.PerDay, Max: 9},
					hongbao.Limit{By: "device", Per: hongbao.PerCampaign, Max: 9})
				b.load(t, c)
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := shards.Of(b.rdb, b.k).Grab(ctx, grab(), nil)
				return err
			},
		},
	}
}

// dayOf names the hash that counts for the present day of a campaign.
func dayOf(c hongbao.Campaign) string {
	zone, err := campaigns.Transitions(c)
	if err != nil {
		panic(err)
	}
	day, _ := campaigns.Bucket(zone, hongbao.PerDay, time.Now().UnixMilli())
	return fmt.Sprint("d", day)
}

// shardCases are those that bring a deployment into Redis, freeze a shard and open it.
func shardCases() map[string]scriptCase {
	return map[string]scriptCase{
		"found": {
			keys: func(b *bundle) []string { return []string{b.k.Meta(), b.k.Events()} },
			prep: func(t *testing.T, b *bundle) { require.NoError(t, b.rdb.Del(t.Context(), b.k.Meta()).Err()) },
			call: func(ctx context.Context, b *bundle) error {
				return shards.Found(ctx, b.rdb, b.layout, shards.FoundCall{Deployment: "test"})
			},
		},
		"freeze": {
			ages: true,
			keys: func(b *bundle) []string { return []string{b.k.Meta()} },
			prep: func(t *testing.T, b *bundle) {
				require.NoError(t, b.rdb.HSet(t.Context(), b.k.Meta(), "opened", "another").Err())
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := shards.Of(b.rdb, b.k).Freeze(ctx)
				return err
			},
		},
		"replicas": {
			keys: func(b *bundle) []string { return []string{b.k.Meta()} },
			call: func(ctx context.Context, b *bundle) error {
				return shards.Of(b.rdb, b.k).RaiseReplicas(ctx, 2)
			},
		},
		"unskip": {
			keys: func(b *bundle) []string { return []string{b.k.Meta()} },
			prep: func(t *testing.T, b *bundle) {
				require.NoError(t, b.rdb.HSet(t.Context(), b.k.Meta(), "skipped", "2-3,65536-65535").Err())
			},
			call: func(ctx context.Context, b *bundle) error {
				return shards.Of(b.rdb, b.k).Unskip(ctx)
			},
		},
		"open": {
			keys: func(b *bundle) []string { return []string{b.k.Meta(), b.k.Events(), b.k.Claims("kafka")} },
			prep: claimed,
			call: func(ctx context.Context, b *bundle) error {
				token, err := shardstest.Token(ctx, b.rdb, b.k)
				if err != nil {
					return err
				}
				_, err = shards.Of(b.rdb, b.k).Reopen(ctx, b.layout, &shards.Reopening{
					Was: shards.Frozen{Seq: 2 * shards.ChunkEvents, Epoch: 1, Token: token}, Epoch: 2, Last: 3*shards.ChunkEvents - 1,
					Known: 5, Sinks: []string{"kafka"},
				})
				return err
			},
		},
	}
}

// loadCases are those that bring a campaign into Redis.
func loadCases() map[string]scriptCase {
	return map[string]scriptCase{
		"create_campaign": {
			grows: true,
			keys: func(b *bundle) []string {
				return []string{b.k.Meta(), b.k.Campaign("rain"), b.k.Stock("rain"), b.k.Receipts("rain"),
					b.k.Counters("rain", "c"), b.k.Codes("rain"), b.k.Sums("rain", 1), b.k.Filter("rain")}
			},
			call: begin,
		},
		"load": {
			grows: true,
			keys: func(b *bundle) []string {
				return []string{b.k.Campaign("rain"), b.k.Stock("rain"), b.k.Sums("rain", 1)}
			},
			prep: func(t *testing.T, b *bundle) { require.NoError(t, begin(t.Context(), b)) },
			call: chunk,
		},
		"announce": {
			grows: true,
			keys: func(b *bundle) []string {
				return []string{b.k.Campaign("rain"), b.k.StockOf("rain", 2), b.k.Sums("rain", 2)}
			},
			prep: func(t *testing.T, b *bundle) { b.load(t, spec("rain", 5)) },
			call: func(ctx context.Context, b *bundle) error {
				return shards.Of(b.rdb, b.k).Announce(ctx, announcement(b, 5, 50))
			},
		},
		"codes": {
			grows: true,
			keys:  func(b *bundle) []string { return []string{b.k.Campaign("rain"), b.k.Codes("rain")} },
			prep:  func(t *testing.T, b *bundle) { require.NoError(t, begin(t.Context(), b)) },
			call:  putCodes,
		},
		"state": {
			keys: func(b *bundle) []string { return []string{b.k.Campaign("rain"), b.k.Stock("rain"), b.k.Controls()} },
			prep: func(t *testing.T, b *bundle) {
				require.NoError(t, begin(t.Context(), b))
				require.NoError(t, chunk(t.Context(), b))
			},
			call: func(ctx context.Context, b *bundle) error {
				return shards.Of(b.rdb, b.k).SetState(ctx, "rain", campaigns.Open, campaigns.Loading)
			},
		},
	}
}

// endCases are those that end a campaign.
func endCases() map[string]scriptCase {
	return map[string]scriptCase{
		"close": {
			keys: func(b *bundle) []string {
				return []string{b.k.Meta(), b.k.Events(), b.k.Campaign("rain"), b.k.Receipts("rain"), b.k.Stock("rain"),
					b.k.Sums("rain", 1)}
			},
			prep: func(t *testing.T, b *bundle) {
				b.load(t, spec("rain", 5))
				b.grab(t, "rain", "u1", "u2")
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := shards.Of(b.rdb, b.k).Close(ctx, "rain", true, 0)
				return err
			},
		},
		"refunded": {
			keys: func(b *bundle) []string { return []string{b.k.Campaign("rain"), b.k.Refunded()} },
			prep: func(t *testing.T, b *bundle) { b.closed(t, "rain", 5, 2) },
			call: func(ctx context.Context, b *bundle) error {
				_, err := shards.Of(b.rdb, b.k).Refunded(ctx, "rain")
				return err
			},
		},
		"end_lost": {
			keys: func(b *bundle) []string {
				return []string{b.k.Campaign("rain"), b.k.Refunded(), b.k.Stock("rain"), b.k.Sums("rain", 1)}
			},
			prep: func(t *testing.T, b *bundle) {
				b.load(t, spec("rain", 5))
				require.NoError(t, b.rdb.HSet(t.Context(), b.k.Campaign("rain"), "state", campaigns.Frozen).Err())
			},
			call: func(ctx context.Context, b *bundle) error {
				return shards.Of(b.rdb, b.k).EndLost(ctx, &shards.LostCampaign{ID: "rain", Packets: 5, Total: 15, Loaded: 5,
					LoadedAmount: 15, Granted: 2, GrantedAmount: 6})
			},
		},
		"purge_campaign": {
			keys: func(b *bundle) []string {
				return []string{b.k.Campaign("rain"), b.k.Stock("rain"), b.k.Receipts("rain"), b.k.Counters("rain", "c"),
					b.k.Codes("rain"), b.k.Refunded(), b.k.Filter("rain"), b.k.Sums("rain", 1)}
			},
			prep: func(t *testing.T, b *bundle) {
				b.closed(t, "rain", 5, 2)
				_, err := shards.Of(b.rdb, b.k).Refunded(t.Context(), "rain")
				require.NoError(t, err)
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := shards.Of(b.rdb, b.k).PurgeCampaign(ctx, "rain", 0)
				return err
			},
		},
	}
}

// keepCases are those that keep the stream and the dead letters.
func keepCases() map[string]scriptCase {
	return map[string]scriptCase{
		"resolve_letter": {
			grows: true,
			keys:  func(b *bundle) []string { return []string{b.k.Dead("kafka"), b.k.Resolved("kafka")} },
			prep:  deadLetter,
			call: func(ctx context.Context, b *bundle) error {
				id := "1-1"
				if rows, err := b.rdb.XRange(ctx, b.k.Dead("kafka"), "-", "+").Result(); err == nil && len(rows) > 0 {
					id = rows[0].ID
				}
				_, err := shards.Of(b.rdb, b.k).ResolveLetter(ctx,
					&shards.Decision{Sink: "kafka", Letter: id, What: shards.Dropped, By: "ann", Why: "a test"})
				return err
			},
		},
		"expire_letters": {
			keys: func(b *bundle) []string { return []string{b.k.Resolved("kafka")} },
			prep: func(t *testing.T, b *bundle) {
				require.NoError(t, b.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: b.k.Resolved("kafka"), ID: "5-1",
					Values: []string{"letter", "4-1", "decision", shards.Requeued, "by", "ann", "why", "x"}}).Err())
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := shards.Of(b.rdb, b.k).ExpireLetters(ctx, &shards.OldLetters{Sink: "kafka", Age: time.Hour, Limit: 9})
				return err
			},
		},
		"replay": {
			grows: true,
			keys:  func(b *bundle) []string { return []string{b.k.Replay("r1"), b.k.Meta()} },
			call: func(ctx context.Context, b *bundle) error {
				_, err := shards.Of(b.rdb, b.k).BeginReplay(ctx, "r1", "{}", 0)
				return err
			},
		},
		"replayed": {
			grows: true,
			keys:  func(b *bundle) []string { return []string{b.k.Replay("r1")} },
			prep: func(t *testing.T, b *bundle) {
				_, err := shards.Of(b.rdb, b.k).BeginReplay(t.Context(), "r1", "{}", 0)
				require.NoError(t, err)
			},
			call: func(ctx context.Context, b *bundle) error {
				return shards.Of(b.rdb, b.k).Replayed(ctx, "r1", 5)
			},
		},
		"trim": {
			ages: true,
			keys: func(b *bundle) []string { return []string{b.k.Events(), b.k.Meta(), b.k.Done("kafka", 0)} },
			prep: func(t *testing.T, b *bundle) {
				pending(t, b)
				_, err := shards.Of(b.rdb, b.k).Ack(t.Context(), "kafka", nil, []string{b.id(t.Context(), 0)})
				require.NoError(t, err)
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := shards.Of(b.rdb, b.k).TrimEvents(ctx,
					shards.Trim{Retention: 0, MaxEvents: 1, Limit: 9, Groups: []string{"kafka"}})
				return err
			},
		},
	}
}

// claimCases are those that have an owner: claims, locks, messages told once.
func claimCases() map[string]scriptCase {
	once := func(step string) func(context.Context, *bundle) error {
		return func(ctx context.Context, b *bundle) error {
			_, err := shards.Of(b.rdb, b.k).Once(ctx, &shards.OnceCall{
				Name: "sms", ID: "m1", Do: step, Token: "t1", Lease: time.Minute, Keep: time.Hour,
			})
			return err
		}
	}
	return map[string]scriptCase{
		"claim": {
			keys: func(b *bundle) []string { return b.doneKeys(b.k.Claims("kafka"), b.k.Meta()) },
			prep: reachedRanges,
			call: func(ctx context.Context, b *bundle) error {
				_, err := shards.Of(b.rdb, b.k).Claim(ctx, claimCall("c1", "w1"))
				return err
			},
		},
		"complete": {
			keys: func(b *bundle) []string { return b.doneKeys(b.k.Claims("kafka")) },
			prep: claimed,
			call: func(ctx context.Context, b *bundle) error {
				return shards.Of(b.rdb, b.k).Complete(ctx, "kafka", &stream.Claim{ID: "c1", Fence: 1, Events: ranges})
			},
		},
		"release": {
			keys: claims, prep: claimed,
			call: func(ctx context.Context, b *bundle) error {
				return shards.Of(b.rdb, b.k).Release(ctx, "kafka", &stream.Claim{ID: "c1", Fence: 1, Events: ranges})
			},
		},
		"once": {
			grows: true,
			keys:  func(b *bundle) []string { return []string{b.k.Once("sms", "m1")} },
			call:  once("claim"),
		},
		"rate": {
			ages: true,
			keys: func(b *bundle) []string { return []string{b.k.Rate("kafka")} },
			call: func(ctx context.Context, b *bundle) error {
				_, _, err := shards.Of(b.rdb, b.k).Turn(ctx, &shards.RateCall{Sink: "kafka", PerSecond: 1, Grants: 60,
					Most: time.Hour})
				return err
			},
		},
		"lock": {
			keys: func(b *bundle) []string { return []string{b.k.Lock("close")} },
			call: func(ctx context.Context, b *bundle) error {
				_, _, err := shards.Of(b.rdb, b.k).TakeLock(ctx, lock("w1"))
				return err
			},
		},
	}
}

// controlCases are what people decide about sinks, and its way to the ledger and back.
func controlCases() map[string]scriptCase {
	return map[string]scriptCase{
		"sink": {
			keys: func(b *bundle) []string {
				return []string{b.k.Sink("kafka"), b.k.Controls(), b.k.SinkCampaigns("kafka")}
			},
			call: func(ctx context.Context, b *bundle) error {
				_, _, err := shards.Of(b.rdb, b.k).PauseSink(ctx, "kafka", "ann", "the bank is closed")
				return err
			},
		},
		"restore": {
			keys: func(b *bundle) []string { return []string{b.k.SinkCampaigns("kafka"), b.k.Sink("kafka")} },
			call: func(ctx context.Context, b *bundle) error {
				_, err := shards.Of(b.rdb, b.k).RestoreControl(ctx, &stream.Control{Kind: stream.ControlSinkCampaign, Sink: "kafka",
					Campaign: "rain", Value: "1", By: "ann", Why: "test", Rev: 7})
				return err
			},
		},
		"kept": {
			keys: func(b *bundle) []string { return []string{b.k.Controls()} },
			prep: func(t *testing.T, b *bundle) {
				_, _, err := shards.Of(b.rdb, b.k).PauseSink(t.Context(), "kafka", "ann", "the bank is closed")
				require.NoError(t, err)
			},
			call: keep,
		},
	}
}
