package store_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/load"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
)

// scriptCase prepares Redis so that a call of the script would write.
type scriptCase struct {
	keys func(b *bundle) []string
	prep func(t *testing.T, b *bundle)
	call func(ctx context.Context, b *bundle) error
	// grows reports whether Redis refuses the script when it is out of memory. Scripts that finish work or free
	// memory still run then.
	grows bool
	// ages reports whether the reply contains times, so that two calls have different replies.
	ages bool
}

var ranges = stream.OfCampaign("rain", stream.SeqRange{First: 1, Last: 2},
	stream.SeqRange{First: store.ChunkEvents - 1, Last: store.ChunkEvents})

// claimRanges are the ranges without their campaign, as a claim has them.
var claimRanges = stream.Seqs(ranges)

func claimCall(id, owner string) *store.ClaimCall {
	return &store.ClaimCall{Sink: "kafka", ID: id, Owner: owner, Lease: time.Minute, Events: claimRanges, Payload: "p"}
}

func (b *bundle) doneKeys(first ...string) []string {
	return append(first, b.k.Keys.Done("kafka", 0), b.k.Keys.Done("kafka", 1))
}

// pending delivers two entries to worker w1 of group kafka.
func pending(t *testing.T, b *bundle) {
	b.events(t, "rain", 2, 1)
	b.group(t, "kafka")
	require.Len(t, b.read(t, "kafka", "w1", 10), 2)
}

// deadLetter writes a dead letter of group kafka for the event with seq 3.
func deadLetter(t *testing.T, b *bundle) {
	pending(t, b)
	written, err := b.k.DeadLetter(t.Context(), store.Letter{
		Group: "kafka", Consumer: "w1", EntryID: b.id(t.Context(), 1), Last: true, Class: hongbao.ClassPermanent,
		Reason: "too large", Attempts: 3,
		Grant: &hongbao.Grant{Campaign: "rain", Seq: 3, Packet: 3, Amount: 1, User: "u3"},
	})
	require.NoError(t, err)
	require.True(t, written)
}

func claimed(t *testing.T, b *bundle) {
	reachedRanges(t, b)
	_, err := b.k.Claim(t.Context(), claimCall("c1", "w1"))
	require.NoError(t, err)
}

// withRain puts campaign rain into Redis before prep.
func withRain(prep func(t *testing.T, b *bundle)) func(t *testing.T, b *bundle) {
	return func(t *testing.T, b *bundle) {
		b.load(t, spec("rain", 5))
		prep(t, b)
	}
}

func reachedRanges(t *testing.T, b *bundle) { b.reached(t, 2*store.ChunkEvents) }

func events(b *bundle) []string { return []string{b.k.Keys.Events()} }
func claims(b *bundle) []string { return []string{b.k.Keys.Claims("kafka")} }

func begin(ctx context.Context, b *bundle) error {
	_, err := b.k.CreateCampaign(ctx, &store.CampaignCall{Campaign: "rain", Hash: "h", Fields: []string{
		"from", "1", "to", "9", "user_campaign", "1", "packets", "2", "total", "6",
	}})
	return err
}

func chunk(ctx context.Context, b *bundle) error {
	_, err := b.k.LoadChunk(ctx,
		&store.Chunk{Campaign: "rain", Hash: "h", First: 1, Amounts: []hongbao.Amount{2, 4}})
	return err
}

func putCodes(ctx context.Context, b *bundle) error {
	_, err := b.k.PutCodes(ctx,
		&store.CodesChunk{Campaign: "rain", Hash: "h", First: 1, Codes: []string{"A1", "B2"}})
	return err
}

// keep records for each decision on the shard that the ledger has it.
func keep(ctx context.Context, b *bundle) error {
	all, errs := b.store.NewControls(ctx)
	if errs[b.k.Index()] != nil {
		return errs[b.k.Index()]
	}
	for i := range all[b.k.Index()] {
		if err := b.k.ControlKept(ctx, &all[b.k.Index()][i]); err != nil {
			return err
		}
	}
	return nil
}

func (b *bundle) id(ctx context.Context, at int) string {
	rows, err := b.rdb.XRange(ctx, b.k.Keys.Events(), "-", "+").Result()
	if err != nil || at >= len(rows) {
		return "1-1" // the stream key has another type
	}
	return rows[at].ID
}

// scriptCases returns the cases of all scripts, by script name.
func scriptCases() map[string]scriptCase {
	all := map[string]scriptCase{}
	for _, some := range []map[string]scriptCase{grabCases(), shardCases(), mendCases(), withheldCases(), loadCases(), endCases(), pendingCases(),
		keepCases(), claimCases(), controlCases()} {
		maps.Copy(all, some)
	}
	return all
}

func grabCases() map[string]scriptCase {
	grab := func() *store.GrabCall {
		c := call("rain", "u1", "u2/r2")
		c.FactNames = "device"
		for _, g := range c.Grabs {
			g.Facts = map[string]string{"device": "d"}
		}
		return c
	}
	return map[string]scriptCase{
		"receipts": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Campaign("rain"), b.k.Keys.Receipts("rain")} },
			prep: func(t *testing.T, b *bundle) {
				b.load(t, spec("rain", 5))
				b.grab(t, "rain", "u1")
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.Place("rain").Receipts(ctx, call("rain", "u1", "u2").Grabs, nil)
				return err
			},
		},
		"winners": {
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Campaign("rain"), b.k.Keys.Receipts("rain"), b.k.Keys.Stock("rain")}
			},
			prep: emptied,
			call: func(ctx context.Context, b *bundle) error {
				return b.k.Place("rain").Winners(ctx, b.revision(ctx), func(string) {})
			},
		},
		"put_filter": {
			grows: true,
			keys:  func(b *bundle) []string { return []string{b.k.Keys.Campaign("rain"), b.k.Keys.Filter("rain")} },
			prep:  emptied,
			call: func(ctx context.Context, b *bundle) error {
				return b.k.Place("rain").PutFilter(ctx, filterPart(b.revision(ctx), "0", "x"))
			},
		},
		"grab": {
			grows: true,
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Meta(), b.k.Keys.Events(), b.k.Keys.Campaign("rain"), b.k.Keys.Stock("rain"), b.k.Keys.Receipts("rain"),
					b.k.Keys.Counters("rain", dayOf(spec("rain", 5))), b.k.Keys.Counters("rain", "c")}
			},
			prep: func(t *testing.T, b *bundle) {
				c := spec("rain", 5)
				c.Limits = append(c.Limits, hongbao.Limit{By: "device", Per: hongbao.PerDay, Max: 9},
					hongbao.Limit{By: "device", Per: hongbao.PerCampaign, Max: 9})
				b.load(t, c)
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.Place("rain").Grab(ctx, grab(), nil)
				return err
			},
		},
	}
}

// dayOf returns the name of the hash that counts for the present day of a campaign.
func dayOf(c hongbao.Campaign) string {
	zone, err := load.Transitions(c)
	if err != nil {
		panic(err)
	}
	day, _ := load.Bucket(zone, hongbao.PerDay, time.Now().UnixMilli())
	return fmt.Sprint("d", day)
}

// shardCases returns the scripts that initialize a deployment, freeze a shard and open it.
func shardCases() map[string]scriptCase {
	return map[string]scriptCase{
		"found": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Meta(), b.k.Keys.Events()} },
			prep: func(t *testing.T, b *bundle) { require.NoError(t, b.rdb.Del(t.Context(), b.k.Keys.Meta()).Err()) },
			call: func(ctx context.Context, b *bundle) error {
				return b.store.Initialize(ctx, store.InitializeCall{Deployment: "test"})
			},
		},
		"freeze": {
			ages: true,
			keys: func(b *bundle) []string { return []string{b.k.Keys.Meta()} },
			prep: func(t *testing.T, b *bundle) {
				require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Meta(), "opened", "another").Err())
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.Freeze(ctx)
				return err
			},
		},
		"replicas": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Meta()} },
			call: func(ctx context.Context, b *bundle) error {
				return b.k.RaiseReplicas(ctx, 2)
			},
		},
		"touch": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Receipts("rain")} },
			prep: func(t *testing.T, b *bundle) {
				b.load(t, spec("rain", 2))
				b.grab(t, "rain", "u1/r1")
			},
			call: func(ctx context.Context, b *bundle) error { return store.Touch(ctx, b.k, "rain", "u1", "u2") },
		},
		"witness": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Meta(), b.k.Keys.Witnesses()} },
			call: func(ctx context.Context, b *bundle) error { return store.WitnessOf(ctx, b.k) },
		},
		"open": {
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Meta(), b.k.Keys.Events(), b.k.Keys.Evidence(), b.k.Keys.Claims("kafka")}
			},
			prep: claimed,
			call: func(ctx context.Context, b *bundle) error {
				token, err := storetest.Token(ctx, b.k)
				if err != nil {
					return err
				}
				_, err = b.k.Reopen(ctx, &store.Reopening{
					Was: store.Frozen{Seq: 2 * store.ChunkEvents, Epoch: 1, Token: token}, Epoch: 2, Last: 3*store.ChunkEvents - 1,
					Known: 5, Sinks: []string{"kafka"},
				})
				return err
			},
		},
	}
}

func loadCases() map[string]scriptCase {
	return map[string]scriptCase{
		"create_campaign": {
			grows: true,
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Meta(), b.k.Keys.Campaign("rain"), b.k.Keys.Stock("rain"), b.k.Keys.Receipts("rain"),
					b.k.Keys.Counters("rain", "c"), b.k.Keys.Codes("rain"), b.k.Keys.LoadedTotals("rain", 1), b.k.Keys.Filter("rain")}
			},
			call: begin,
		},
		"load": {
			grows: true,
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Campaign("rain"), b.k.Keys.Stock("rain"), b.k.Keys.LoadedTotals("rain", 1)}
			},
			prep: func(t *testing.T, b *bundle) { require.NoError(t, begin(t.Context(), b)) },
			call: chunk,
		},
		"announce": {
			grows: true,
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Campaign("rain"), b.k.Keys.StockOf("rain", 2), b.k.Keys.LoadedTotals("rain", 2)}
			},
			prep: func(t *testing.T, b *bundle) { b.load(t, spec("rain", 5)) },
			call: func(ctx context.Context, b *bundle) error {
				return b.k.Announce(ctx, announcement(b, 5, 50))
			},
		},
		"codes": {
			grows: true,
			keys:  func(b *bundle) []string { return []string{b.k.Keys.Campaign("rain"), b.k.Keys.Codes("rain")} },
			prep:  func(t *testing.T, b *bundle) { require.NoError(t, begin(t.Context(), b)) },
			call:  putCodes,
		},
		"state": {
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Campaign("rain"), b.k.Keys.Stock("rain"), b.k.Keys.Controls()}
			},
			prep: func(t *testing.T, b *bundle) {
				require.NoError(t, begin(t.Context(), b))
				require.NoError(t, chunk(t.Context(), b))
			},
			call: func(ctx context.Context, b *bundle) error {
				return b.k.Place("rain").SetState(ctx, store.StateOpen, store.StateLoading)
			},
		},
	}
}

func endCases() map[string]scriptCase {
	return map[string]scriptCase{
		"close": {
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Meta(), b.k.Keys.Events(), b.k.Keys.Campaign("rain"), b.k.Keys.Receipts("rain"), b.k.Keys.Withheld("rain"),
					b.k.Keys.Stock("rain"), b.k.Keys.LoadedTotals("rain", 1)}
			},
			prep: func(t *testing.T, b *bundle) {
				b.load(t, spec("rain", 5))
				b.grab(t, "rain", "u1", "u2")
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.Place("rain").Close(ctx, true, 0)
				return err
			},
		},
		"refunded": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Campaign("rain"), b.k.Keys.Refunded()} },
			prep: func(t *testing.T, b *bundle) { b.closed(t, "rain", 5, 2) },
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.Place("rain").Refunded(ctx)
				return err
			},
		},
		"end_lost": {
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Campaign("rain"), b.k.Keys.Refunded(), b.k.Keys.Withheld("rain"),
					b.k.Keys.Stock("rain"), b.k.Keys.LoadedTotals("rain", 1)}
			},
			prep: func(t *testing.T, b *bundle) {
				b.load(t, spec("rain", 5))
				require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Campaign("rain"), "state", store.StateFrozen).Err())
			},
			call: func(ctx context.Context, b *bundle) error {
				return b.k.EndLost(ctx, &store.LostCampaign{ID: "rain", Packets: 5, Total: 15, Loaded: 5,
					LoadedAmount: 15, Granted: 2, GrantedAmount: 6})
			},
		},
		"answers": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Campaign("rain"), b.k.Keys.Answers("rain")} },
			prep: func(t *testing.T, b *bundle) {
				b.load(t, spec("rain", 5))
				require.NoError(t, b.rdb.HSet(t.Context(), b.k.Keys.Answers("rain"), "old", "5 granted=1").Err())
			},
			call: func(ctx context.Context, b *bundle) error {
				return b.k.StoreAnswers(ctx, []store.AnswersLine{{Campaign: "rain", Name: "s1",
					Counts: []model.AnswerCount{{Name: "granted", N: 2}}}})[0].Err
			},
			grows: true, ages: true,
		},
		"purge_campaign": {
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Campaign("rain"), b.k.Keys.Stock("rain"), b.k.Keys.Receipts("rain"), b.k.Keys.Counters("rain", "c"),
					b.k.Keys.Codes("rain"), b.k.Keys.Refunded(), b.k.Keys.Filter("rain"), b.k.Keys.Withheld("rain"), b.k.Keys.Answers("rain"),
					b.k.Keys.LoadedTotals("rain", 1)}
			},
			prep: func(t *testing.T, b *bundle) {
				b.closed(t, "rain", 5, 2)
				_, err := b.k.Place("rain").Refunded(t.Context())
				require.NoError(t, err)
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.Place("rain").PurgeCampaign(ctx, 0)
				return err
			},
		},
	}
}

// keepCases returns the scripts that maintain the stream and the dead letters.
func keepCases() map[string]scriptCase {
	return map[string]scriptCase{
		"resolve_letter": {
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Dead("kafka"), b.k.Keys.ResolvedLetters("kafka"), b.k.Keys.Campaign("rain")}
			},
			prep: deadLetter,
			call: func(ctx context.Context, b *bundle) error {
				id := "1-1"
				if rows, err := b.rdb.XRange(ctx, b.k.Keys.Dead("kafka"), "-", "+").Result(); err == nil && len(rows) > 0 {
					id = rows[0].ID
				}
				_, err := b.k.ResolveLetter(ctx,
					&store.Resolution{Sink: "kafka", Letter: id, What: model.LetterRequeued, Campaign: "rain",
						Decision: by("ann", "a test")})
				return err
			},
		},
		"expire_letters": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.ResolvedLetters("kafka")} },
			prep: func(t *testing.T, b *bundle) {
				require.NoError(t, b.rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: b.k.Keys.ResolvedLetters("kafka"), ID: "5-1",
					Values: []string{"letter", "4-1", "decision", model.LetterRequeued, "by", "ann", "why", "x"}}).Err())
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.ExpireLetters(ctx, &store.OldLetters{Sink: "kafka", Age: time.Hour, Limit: 9})
				return err
			},
		},
		"replay": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Replay("r1"), b.k.Keys.Meta()} },
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.BeginReplay(ctx, "r1", "{}", 0)
				return err
			},
		},
		"replayed": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Replay("r1")} },
			prep: func(t *testing.T, b *bundle) {
				_, err := b.k.BeginReplay(t.Context(), "r1", "{}", 0)
				require.NoError(t, err)
			},
			call: func(ctx context.Context, b *bundle) error {
				return b.k.Replayed(ctx, "r1", 5)
			},
		},
		"trim": {
			ages: true,
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Events(), b.k.Keys.Meta(), b.k.Keys.Done("kafka", 0)}
			},
			prep: func(t *testing.T, b *bundle) {
				pending(t, b)
				_, err := b.k.Group("kafka").Ack(t.Context(), nil, []string{b.id(t.Context(), 0)})
				require.NoError(t, err)
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.TrimEvents(ctx,
					store.Trim{Retention: 0, MaxEvents: 1, Limit: 9, Groups: []string{"kafka"}})
				return err
			},
		},
	}
}

// claimCases returns the scripts for claims, locks and messages of package dedup, which all have an owner.
func claimCases() map[string]scriptCase {
	once := func(step string) func(context.Context, *bundle) error {
		return func(ctx context.Context, b *bundle) error {
			_, err := b.k.Once(ctx, &store.OnceCall{
				Name: "sms", ID: "m1", Do: step, Token: "t1", Lease: time.Minute, Keep: time.Hour,
			})
			return err
		}
	}
	return map[string]scriptCase{
		"claim": {
			keys: func(b *bundle) []string { return b.doneKeys(b.k.Keys.Claims("kafka"), b.k.Keys.Meta()) },
			prep: reachedRanges,
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.Claim(ctx, claimCall("c1", "w1"))
				return err
			},
		},
		"complete": {
			keys: func(b *bundle) []string {
				return b.doneKeys(b.k.Keys.Claims("kafka"), b.k.Keys.Meta(), b.k.Keys.Campaign("rain"),
					b.k.Keys.Done("requeue-kafka", 0), b.k.Keys.Done("requeue-kafka", 1))
			},
			prep: withRain(claimed),
			call: func(ctx context.Context, b *bundle) error {
				return b.k.Group("kafka").Complete(ctx, &stream.Claim{ID: "c1", Fence: 1}, ranges,
					store.Also{Sink: "requeue-kafka", Letters: true})
			},
		},
		"release": {
			keys: claims, prep: claimed,
			call: func(ctx context.Context, b *bundle) error {
				return b.k.Group("kafka").Release(ctx, &stream.Claim{ID: "c1", Fence: 1})
			},
		},
		"once": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Once("sms", "m1")} },
			call: once("claim"),
		},
		"rate": {
			ages: true,
			keys: func(b *bundle) []string { return []string{b.k.Keys.Rate("kafka")} },
			call: func(ctx context.Context, b *bundle) error {
				_, _, err := b.k.ReserveRate(ctx, &store.RateCall{Sink: "kafka", PerSecond: 1, Grants: 60,
					Most: time.Hour})
				return err
			},
		},
		"lock": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Lock("close")} },
			call: func(ctx context.Context, b *bundle) error {
				_, _, err := b.k.TakeLock(ctx, lock("w1"))
				return err
			},
		},
	}
}

// controlCases returns the scripts for decisions of operators about sinks. Such decisions are copied to the ledger
// and can be restored from it.
func controlCases() map[string]scriptCase {
	return map[string]scriptCase{
		"sink": {
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Sink("kafka"), b.k.Keys.Controls(), b.k.Keys.SinkCampaigns("kafka")}
			},
			call: func(ctx context.Context, b *bundle) error {
				_, _, err := b.k.Group("kafka").Pause(ctx, by("ann", "the bank is closed"))
				return err
			},
		},
		"restore": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.SinkCampaigns("kafka"), b.k.Keys.Sink("kafka")} },
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.RestoreControl(ctx, &stream.Control{Kind: stream.ControlSinkCampaign, Sink: "kafka",
					Campaign: "rain", Value: "1", Decision: by("ann", "test"), Rev: 7})
				return err
			},
		},
		"kept": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Controls()} },
			prep: func(t *testing.T, b *bundle) {
				_, _, err := b.k.Group("kafka").Pause(t.Context(), by("ann", "the bank is closed"))
				require.NoError(t, err)
			},
			call: keep,
		},
	}
}

// mendCases returns the scripts of an attempt to restore a shard.
func mendCases() map[string]scriptCase {
	return map[string]scriptCase{
		"testify": {
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Meta(), b.k.Keys.Witnesses(), b.k.Keys.Evidence()}
			},
			prep: func(t *testing.T, b *bundle) { b.begin(t) },
			call: func(ctx context.Context, b *bundle) error { return store.SendEvidence(ctx, b.k, attempt.Epoch) },
		},
		"leave": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Witnesses(), b.k.Keys.Meta()} },
			prep: func(t *testing.T, b *bundle) { require.NoError(t, store.WitnessOf(t.Context(), b.k)) },
			call: func(ctx context.Context, b *bundle) error { return b.store.Leave(ctx) },
		},
		"mend": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Meta()} },
			prep: func(t *testing.T, b *bundle) { b.freeze(t) },
			call: func(ctx context.Context, b *bundle) error {
				return b.k.Begin(ctx, &store.Frozen{Seq: 0, Epoch: 1}, attempt)
			},
		},
		"regrant": {
			keys: func(b *bundle) []string {
				return append([]string{b.k.Keys.Meta(), b.k.Keys.Events(), b.k.Keys.Campaign("rain"), b.k.Keys.Receipts("rain"),
					b.k.Keys.Withheld("rain")}, b.k.Keys.Stocks("rain", 1)...)
			},
			prep: func(t *testing.T, b *bundle) {
				b.load(t, spec("rain", 10))
				b.begin(t)
			},
			call: func(ctx context.Context, b *bundle) error {
				first, err := b.rdb.LIndex(ctx, b.k.Keys.Stock("rain"), 0).Result()
				if err != nil {
					return store.Classify(err)
				}
				g := hongbao.Grant{Campaign: "rain", User: "u1", Seq: 1, Time: time.UnixMilli(1_800_000_000_000)}
				if _, err := fmt.Sscan(first, &g.Packet, &g.Amount); err != nil {
					return err
				}
				return b.k.RestoreGrants(ctx, attempt, run(g))
			},
		},
		"revise": {
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Meta(), b.k.Keys.Campaign("rain"), b.k.Keys.Filter("rain")}
			},
			prep: func(t *testing.T, b *bundle) {
				b.load(t, spec("rain", 10))
				b.begin(t)
			},
			call: func(ctx context.Context, b *bundle) error { return b.k.Revise(ctx, attempt, "rain") },
		},
		"mark": {
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Meta(), b.k.Keys.Claims("kafka"), b.k.Keys.Campaign("rain"),
					b.k.Keys.Done("kafka", 0)}
			},
			prep: withRain(func(t *testing.T, b *bundle) { b.begin(t) }),
			call: func(ctx context.Context, b *bundle) error {
				return b.k.SetDone(ctx, attempt, "kafka", "kafka", seqs("rain", 3, 40))
			},
		},
	}
}

// withheldCases returns the scripts for packets that a restore withholds.
func withheldCases() map[string]scriptCase {
	return map[string]scriptCase{
		"withhold": {
			keys: func(b *bundle) []string {
				return append([]string{b.k.Keys.Meta(), b.k.Keys.Campaign("rain"), b.k.Keys.Withheld("rain")},
					b.k.Keys.Stocks("rain", 1)...)
			},
			prep: func(t *testing.T, b *bundle) {
				b.load(t, spec("rain", 10))
				b.begin(t)
			},
			call: func(ctx context.Context, b *bundle) error {
				return b.k.Withhold(ctx, attempt, "rain", store.Withholding{Last: 1, Front: []int{3}})
			},
		},
		"grant_withheld": {
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Meta(), b.k.Keys.Events(), b.k.Keys.Campaign("rain"), b.k.Keys.Receipts("rain"),
					b.k.Keys.Withheld("rain")}
			},
			prep: withheldThree,
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.GrantWithheld(ctx, &hongbao.Grant{Campaign: "rain", User: "u1", RequestID: "r1", Packet: firstWithheld.Number,
					Amount: firstWithheld.Amount}, store.Room{})
				return err
			},
		},
		"release_withheld": {
			keys: func(b *bundle) []string {
				return append([]string{b.k.Keys.Meta(), b.k.Keys.Campaign("rain"), b.k.Keys.Withheld("rain")},
					b.k.Keys.Stocks("rain", 1)...)
			},
			prep: withheldThree,
			call: func(ctx context.Context, b *bundle) error {
				_, _, err := b.k.Place("rain").ReleaseWithheld(ctx)
				return err
			},
		},
	}
}
