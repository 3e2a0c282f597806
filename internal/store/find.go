package store

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// FindCampaigns returns the campaigns that have at least one key on one of the shards. It scans all keys of each
// server once.
func (s *Store) FindCampaigns(ctx context.Context, on ...*Shard) (map[Place]bool, error) {
	heads := map[string]*Shard{}
	for _, k := range on {
		heads[k.Keys.Campaign("")] = k
	}
	found := map[Place]bool{}
	err := eachKey(ctx, s.rdb, "*}:c:*", func(key string) {
		head, id, _ := strings.Cut(key, "}:c:")
		if shard, ok := heads[head+"}:c:"]; ok {
			id, _, _ = strings.Cut(id, ":") // stock and receipts count even if the campaign's hash is gone
			found[shard.Place(id)] = true
		}
	})
	return found, err
}

// eachKey calls fn for the keys of each server that match a pattern, one call at a time. It may report a key twice.
func eachKey(ctx context.Context, rdb redis.UniversalClient, pattern string, fn func(key string)) error {
	const keysAtOnce = 1_000
	var mu sync.Mutex // a cluster's servers are scanned concurrently
	node := func(ctx context.Context, rdb redis.Cmdable) error {
		for cursor := uint64(0); ; {
			keys, next, err := rdb.Scan(ctx, cursor, pattern, keysAtOnce).Result()
			if err != nil {
				return fmt.Errorf("look for keys %s: %w", pattern, Classify(err))
			}
			mu.Lock()
			for _, key := range keys {
				fn(key)
			}
			mu.Unlock()
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return node(ctx, c) })
	}
	return node(ctx, rdb)
}

// GrantsByReceipts builds grants, by seq, from all receipts on the shard that wanted accepts. A receipt has no
// epoch and no trace, so each grant gets the shard's current epoch and an empty trace.
func (k *Shard) GrantsByReceipts(ctx context.Context, wanted func(g *hongbao.Grant) bool) (map[int64]hongbao.Grant, error) {
	head, err := k.OpenHead(ctx)
	if err != nil {
		return nil, err
	}
	places, err := k.store.FindCampaigns(ctx, k)
	if err != nil {
		return nil, err
	}
	grants := map[int64]hongbao.Grant{}
	for at := range places {
		id := at.Campaign
		err := k.Place(id).EachReceipts(ctx, func(user string, receipts []hongbao.Receipt) error {
			for i := range receipts {
				r := &receipts[i]
				g := hongbao.Grant{
					Campaign: id, User: user, Packet: r.Packet, Amount: r.Amount, Shard: k.Keys.Index(), Seq: r.Seq,
					Epoch: head.Epoch, RequestID: r.RequestID, Time: r.Time.UTC(),
				}
				if wanted(&g) {
					grants[r.Seq] = g
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return grants, nil
}
