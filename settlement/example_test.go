package settlement_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/settlement"
	"github.com/hongbao-project/hongbao/settlement/sqlite"
)

// evenPlan is a plan in which all packets have the same amount.
type evenPlan hongbao.Amount

func (p evenPlan) Amount(context.Context, string, int64) (hongbao.Amount, bool, error) {
	return hongbao.Amount(p), true, nil
}

// A grant that is delivered twice is paid once. A grant that contradicts the ledger goes to quarantine.
func ExampleNew() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "ledger")
	check(err)
	defer os.RemoveAll(folder)
	config := settlement.Config{Database: sqlite.New(filepath.Join(folder, "ledger.db"))}
	_, err = settlement.Migrate(ctx, config) // once for each ledger; workers only call Open
	check(err)
	ledger, err := settlement.Open(ctx, config)
	check(err)
	defer ledger.Close()

	spec := hongbao.Campaign{ID: "rain", Kind: hongbao.KindRedPacket, Currency: "CNY", Total: 1000, Packets: 10,
		Sponsor: "acme"}
	canonical, err := json.Marshal(spec)
	check(err)
	check(ledger.CreateCampaign(ctx, settlement.Campaign{
		Spec: spec, Canonical: canonical, Hash: "the plan's hash", Seed: [32]byte{1},
	}))

	handler, err := settlement.New(settlement.HandlerConfig{
		Ledger: ledger, Plan: evenPlan(100), Log: zap.NewNop(),
		OnQuarantine: func(q settlement.Quarantined) error {
			fmt.Println("quarantine:", q.Reason)
			return nil
		},
	})
	check(err)
	grant := hongbao.Grant{Shard: 0, Seq: 1, Epoch: 1, Campaign: "rain", Packet: 7, Amount: 100, User: "ann",
		Time: time.Now()}
	altered := grant
	altered.User = "eve"
	for _, g := range []hongbao.Grant{grant, grant, altered} {
		fmt.Println("errors:", handler.Handle(ctx, testkit.Batch([]hongbao.Grant{g})))
	}
	for _, user := range []string{"ann", "eve"} {
		balance, err := ledger.Balance(ctx, user, "CNY")
		check(err)
		fmt.Println(user, balance)
	}
	// Output:
	// errors: []
	// errors: []
	// quarantine: exists_with_different_user
	// errors: []
	// ann 100
	// eve 0
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
