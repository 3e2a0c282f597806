package deliveries

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/sinks/remote"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The ledger is down. Each call that needs the ledger fails at once, before any change.
func TestLedgerIsAskedFirst(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnRedis(t, testkit.NewRedis(t, testkit.RedisOptions{}), hongbao.DurabilityFast, 1)
	errDown := hongbao.Outagef(hongbao.ClassTransient, "the ledger is away")
	a.SetLedger(ledger.Lazy(a.LedgerConfig(), func(context.Context) (*ledger.Ledger, error) { return nil, errDown }))
	a.Config.Deployment.Sinks = []string{configs.SinkBalance, configs.SinkKafka}
	a.Config.Settlement.Kind = configs.SettleRemote
	a.Config.Publisher.Brokers = []string{testkit.FreeAddr(t)} // no broker: a call to Kafka returns another error
	ctx := access.As(t.Context(), access.Actor{Who: "key:k"})
	for name, do := range map[string]func() error{
		"replay to kafka": func() error {
			_, err := Of(a).Replay(ctx, Replay{Name: "again", To: configs.SinkKafka, Patience: time.Hour})
			return err
		},
		"replay to another topic": func() error {
			_, err := Of(a).Replay(ctx, Replay{Name: "again", To: "topic:other", Patience: time.Hour})
			return err
		},
		"replay to the remote": func() error {
			_, err := Of(a).Replay(ctx, Replay{Name: "again", To: configs.SinkBalance, Patience: time.Hour})
			return err
		},
		"confirm": func() error {
			_, err := Of(a).Confirm(ctx, Confirmation{Packets: []PacketID{{"rain", 1}}, Patience: time.Hour,
				Word: app.OperatorDecision{Outcome: remote.NotSent, At: time.Now()}, Decision: stream.Decision{By: "ann", Why: "asked"}})
			return err
		},
	} {
		require.ErrorIs(t, do(), errDown, name)
	}
	_, found, err := a.Store().Shard(0).LookUpReplay(ctx, "again")
	require.NoError(t, err)
	require.False(t, found, "nothing is noted")
}
