package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

func pendingAndReached(t *testing.T, b *bundle) {
	t.Helper()
	pending(t, b)
	reachedRanges(t, b)
}

// pendingCases returns the scripts that work on a group's pending list.
func pendingCases() map[string]scriptCase {
	return map[string]scriptCase{
		"reclaim": {
			keys: func(b *bundle) []string {
				return append(events(b), b.k.Keys.Sink("kafka"), b.k.Keys.Lead("kafka"), b.k.Keys.SinkCampaigns("kafka"))
			}, prep: pending,
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.Reclaim(ctx, store.ReclaimCall{Group: "kafka", Consumer: "w2", Count: 9, Lead: time.Minute})
				return err
			},
		},
		"renew": {
			keys: events, prep: pending,
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.Group("kafka").Renew(ctx, "w1", []string{b.id(ctx, 0)})
				return err
			},
		},
		"park": {
			keys: events, prep: pending,
			call: func(ctx context.Context, b *bundle) error {
				list := []store.Parking{{ID: b.id(ctx, 0), Level: 1, Wait: time.Minute, Attempts: 1}}
				_, err := b.k.Group("kafka").Park(ctx, "w1", list)
				return err
			},
		},
		"create_group": {
			keys: events,
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.Group("kafka").Create(ctx)
				return err
			},
		},
		"raise_done_floor": {
			keys: func(b *bundle) []string { return []string{b.k.Keys.Meta(), b.k.Keys.Done("kafka", 0)} },
			call: func(ctx context.Context, b *bundle) error { return b.k.RaiseDoneFloor(ctx, 0, 1, []string{"kafka"}) },
		},
		"remove_idle_consumers": {
			keys: events,
			prep: func(t *testing.T, b *bundle) {
				pending(t, b)
				require.NoError(t, b.rdb.XGroupCreateConsumer(t.Context(), b.k.Keys.Events(), "kafka", "dead").Err())
			},
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.Group("kafka").RemoveIdleConsumers(ctx, "w1", 0)
				return err
			},
		},
		"ack": {
			keys: ackKeys,
			prep: pendingAndReached,
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.Group("kafka").Ack(ctx, ranges, []string{b.id(ctx, 0)})
				return err
			},
		},
		"dead_letter": {
			keys: func(b *bundle) []string {
				return []string{b.k.Keys.Events(), b.k.Keys.Dead("kafka"), b.k.Keys.Done("kafka", 0),
					b.k.Keys.Campaign("rain")}
			},
			prep: pending,
			call: func(ctx context.Context, b *bundle) error {
				_, err := b.k.DeadLetter(ctx, store.Letter{
					Group: "kafka", Consumer: "w1", EntryID: b.id(ctx, 1), Last: true,
					Grant: &hongbao.Grant{Campaign: "rain", Seq: 3, Packet: 3, Amount: 1, User: "u3"},
				})
				return err
			},
		},
	}
}

func ackKeys(b *bundle) []string {
	return b.doneKeys(b.k.Keys.Events(), b.k.Keys.Meta(), b.k.Keys.Campaign("rain"))
}
