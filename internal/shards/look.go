package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// Look is what one server of Redis says of itself and of its shards.
type Look struct {
	Server Server
	// Address is where the server was reached.
	Address string
	Shards  []ShardLook
}

// ShardLook is how a shard stands. A shard that is gone is not open, and its Seq is 0.
type ShardLook struct {
	Shard int
	Open  bool
	Seq   int64
}

// LookAt asks every server that has shards of the layout, in one round trip each.
func LookAt(ctx context.Context, rdb redis.UniversalClient, layout *Layout) ([]Look, error) {
	w := &Watch{Redis: rdb, Layout: layout}
	var all []Look
	var failed []error
	for node, list := range w.nodes(ctx) {
		s, err := see(ctx, node, layout, list)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		one := Look{Server: s.server, Address: address(node)}
		for _, i := range list {
			one.Shards = append(one.Shards, ShardLook{Shard: i, Open: !slices.Contains(s.strange, i), Seq: s.heads[i].Seq})
		}
		all = append(all, one)
	}
	if all == nil && failed == nil {
		return nil, hongbao.Outagef(hongbao.ClassTransient, "no server of Redis can be found that has a shard")
	}
	return all, errors.Join(failed...)
}

func address(node redis.UniversalClient) string {
	if c, ok := node.(*redis.Client); ok {
		return c.Options().Addr
	}
	return "redis"
}

// Left tells how many packets of each campaign nobody has; a campaign that Redis does not have is left out.
func Left(ctx context.Context, rdb redis.UniversalClient, layout *Layout, campaigns []string) (map[string]int64, error) {
	pipe := rdb.Pipeline()
	cmds := make([]*redis.SliceCmd, len(campaigns))
	for i, id := range campaigns {
		cmds[i] = pipe.HMGet(ctx, layout.Home(id).Campaign(id), "packets", "granted")
	}
	if _, err := pipe.Exec(ctx); len(campaigns) > 0 && err != nil {
		return nil, fmt.Errorf("ask what campaigns have left: %w", Classify(err))
	}
	left := map[string]int64{}
	for i, id := range campaigns {
		var n struct {
			Packets int64 `redis:"packets"`
			Granted int64 `redis:"granted"`
		}
		if err := cmds[i].Scan(&n); err == nil && n.Packets > 0 {
			left[id] = n.Packets - n.Granted
		}
	}
	return left, nil
}
