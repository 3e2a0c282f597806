package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// OpenClaim is a claim as Redis stores it.
type OpenClaim struct {
	stream.Claim
	Owner string
	Until time.Time // end of the lease, by the Redis clock; afterwards others may take the claim over
}

// lastFence is the field of the hash of claims with the last fence that was given.
const lastFence = "#fence"

// OpenClaims returns the claims of a sink that have not ended.
func (g Group) OpenClaims(ctx context.Context) ([]OpenClaim, error) {
	all, err := g.shard.rdb.HGetAll(ctx, g.shard.Keys.Claims(g.name)).Result()
	if err != nil {
		return nil, fmt.Errorf("read the claims of %s on shard %d: %w", g.name, g.shard.Keys.Index(), Classify(err))
	}
	var out []OpenClaim
	for id, text := range all {
		if id == lastFence {
			continue
		}
		c, err := parseClaim(id, text)
		if err != nil {
			return nil, hongbao.Errorf(hongbao.ClassBroken, "claim %.80q in %s: %w", id, g.shard.Keys.Claims(g.name), err)
		}
		out = append(out, c)
	}
	return out, nil
}

// parseClaim parses the text "fence until owner\nevents\npayload".
func parseClaim(id, text string) (c OpenClaim, err error) {
	c.ID = id
	lines := strings.SplitN(text, "\n", 3)
	words := strings.Split(lines[0], " ")
	if len(lines) != 3 || len(words) != 3 {
		return c, fmt.Errorf("it can't be read: %.80q", text)
	}
	c.Owner, c.Payload = words[2], lines[2]
	if c.Fence, err = strconv.ParseInt(words[0], 10, 64); err != nil {
		return c, fmt.Errorf("its fence can't be read: %w", err)
	}
	ms, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return c, fmt.Errorf("its time can't be read: %w", err)
	}
	c.Until = time.UnixMilli(ms).UTC()
	c.Events, err = parseEvents(lines[1])
	return c, err
}
