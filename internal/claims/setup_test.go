package claims_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/claims"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/internal/shards/shardstest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

type bundle struct {
	rdb    *redis.Client
	layout *shards.Layout
}

func setup(t *testing.T) *bundle {
	t.Helper()
	rdb, layout := shardstest.Founded(t)
	return &bundle{rdb, layout}
}

func (b *bundle) claims(t *testing.T, owner string) *claims.Claims {
	t.Helper()
	c, err := claims.New(claims.Config{Redis: b.rdb, Space: b.layout.Space, Sink: "kafka", Owner: owner,
		Lease: time.Minute})
	require.NoError(t, err)
	return c
}
