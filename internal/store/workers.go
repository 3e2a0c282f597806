package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Workers returns the workers of a group on the shard. There are none before the stream exists.
func (g Group) Workers(ctx context.Context) ([]Worker, error) {
	var all GroupStatus
	exists, err := g.shard.rdb.Exists(ctx, g.shard.Keys.Events()).Result()
	if err != nil {
		return nil, fmt.Errorf("workers of group %s: %w", g.name, Classify(err))
	}
	if exists > 0 {
		err = addConsumers(g.name, g.shard.rdb.XInfoConsumers(ctx, g.shard.Keys.Events(), g.name), &all)
	}
	return all.Workers, err
}

// WorkerName returns a new name for a worker: the host's name, a name for the process, and a random part. An empty
// process stands for the process's id.
func WorkerName(process string) string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	host = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, host)
	process = cmp.Or(process, strconv.Itoa(os.Getpid()))
	return fmt.Sprintf("%.40s-%s-%s", host, process, hex.EncodeToString(b[:]))
}
