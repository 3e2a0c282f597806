package dedup_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/dedup"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

type bundle struct {
	rdb   redis.UniversalClient
	store *store.Store
}

func setup(t *testing.T) *bundle {
	t.Helper()
	st := storetest.FarAlong(t, storetest.Initialized(t, 4))
	return &bundle{st.Redis(), st}
}

func (b *bundle) once(t *testing.T, lease, keep time.Duration) *dedup.Once {
	t.Helper()
	o, err := dedup.NewOnce(dedup.OnceConfig{Deployment: deployment.Of(b.store.Over(b.rdb), zap.NewNop()), Name: "sms", Lease: lease, Keep: keep})
	require.NoError(t, err)
	return o
}
