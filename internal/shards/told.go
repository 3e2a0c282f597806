package shards

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// Campaigns lists the campaigns that Redis has on the shard. It goes over all keys of the server.
func (k *Shard) Campaigns(ctx context.Context) ([]string, error) {
	const keysAtOnce = 1_000
	var mu sync.Mutex // a cluster's servers are asked at once
	seen := map[string]bool{}
	var ids []string
	head := k.Keys.Campaign("")
	node := func(ctx context.Context, rdb redis.Cmdable) error {
		for cursor := uint64(0); ; {
			keys, next, err := rdb.Scan(ctx, cursor, "*}:c:*", keysAtOnce).Result()
			if err != nil {
				return fmt.Errorf("look for the campaigns of shard %d: %w", k.Keys.Index(), Classify(err))
			}
			mu.Lock()
			for _, key := range keys {
				if id, mine := strings.CutPrefix(key, head); mine && !strings.Contains(id, ":") && !seen[id] {
					seen[id] = true // SCAN may bring it again
					ids = append(ids, id)
				}
			}
			mu.Unlock()
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}
	if cluster, ok := k.rdb.(*redis.ClusterClient); ok {
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return node(ctx, c) })
		return ids, err
	}
	return ids, node(ctx, k.rdb)
}

// Told gives, by seq, the grants that users were told of and that wanted wants, from the receipts. A receipt has no
// epoch and no trace: the epoch is the shard's present one.
func (k *Shard) Told(ctx context.Context, wanted func(seq int64) bool) (map[int64]hongbao.Grant, error) {
	head, err := k.OpenHead(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := k.Campaigns(ctx)
	if err != nil {
		return nil, err
	}
	told := map[int64]hongbao.Grant{}
	for _, id := range ids {
		err := k.EachReceipts(ctx, id, func(user string, receipts []hongbao.Receipt) error {
			for i := range receipts {
				if r := &receipts[i]; wanted(r.Seq) {
					told[r.Seq] = hongbao.Grant{
						Campaign: id, User: user, Packet: r.Packet, Amount: r.Amount, Shard: k.Keys.Index(), Seq: r.Seq,
						Epoch:     head.Epoch,
						RequestID: r.RequestID, Time: r.Time.UTC(),
					}
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return told, nil
}
