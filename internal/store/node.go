package store

import (
	"cmp"
	"context"
	"path"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Node is a server with the additional properties that `hongbao doctor` checks.
type Node struct {
	Server
	// Clock is the time by the server's clock, read between Asked and Answered. It is zero if the Redis user may not
	// call TIME.
	Clock, Asked, Answered time.Time
	// Folder is the directory of the append-only files. It is empty if CONFIG GET is not allowed.
	Folder string
}

// Nodes returns the servers that Inspect checks, ordered by address.
func Nodes(ctx context.Context, rdb redis.UniversalClient) ([]Node, error) {
	nodes, err := askEach(ctx, rdb, lookAtNode)
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(a.Addr, b.Addr) })
	return nodes, err
}

func lookAtNode(ctx context.Context, rdb redis.Cmdable, addr string) (n Node, err error) {
	if n.Server, err = inspect(ctx, rdb, addr); err != nil {
		return n, err
	}
	n.Asked = time.Now()
	if now, err := rdb.Time(ctx).Result(); err == nil {
		n.Clock, n.Answered = now, time.Now()
	}
	n.Folder = folder(ctx, rdb)
	return n, nil
}

func folder(ctx context.Context, rdb redis.Cmdable) string {
	c := readConfig(ctx, rdb, "dir", "appenddirname")
	if c["dir"] == "" || c["appenddirname"] == "" {
		return ""
	}
	return path.Join(c["dir"], c["appenddirname"])
}
