package pages

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app/apptest"
	"github.com/hongbao-project/hongbao/internal/configs/configstest"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/ops/find"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// The trail says that a sink does not owe a grant, in the place of "finished" or "not finished".
func TestTrailNamesWhatASinkDoesNotOwe(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	a := apptest.OnRedis(t, testkit.NewRedis(t, testkit.RedisOptions{}), hongbao.DurabilityFast, 1)
	a.Config.Deployment.Sinks = []string{"balance", "mine"}
	a.Config.Ledger = configstest.Config(t, "HONGBAO_LEDGER_DSN="+filepath.Join(t.TempDir(), "ledger.db")).Ledger
	_, err := ledger.Migrate(t.Context(), a.Config.LedgerConfig())
	require.NoError(t, err)
	books, err := ledger.Open(t.Context(), a.Config.LedgerConfig())
	require.NoError(t, err)
	a.SetLedger(books)
	k := a.Store().Home("rain")
	_, err = k.Group("balance").Create(t.Context())
	require.NoError(t, err)
	require.NoError(t, a.Ledger().Owe(t.Context(), "balance", k.Index(), 1))
	apptest.Grants(t, a, "u1")
	require.NoError(t, a.Redis().XTrimMaxLen(t.Context(), k.Keys.Events(), 0).Err())
	_, err = k.Group("mine").Create(t.Context()) // it owes what is in the stream
	require.NoError(t, err)
	want := []find.TrailSink{{Sink: "balance", TrailWait: find.TrailWait{State: deliveries.SinkNoWorker,
		Why: "no worker has started yet; `hongbao work` starts one"}}, {Sink: "mine", NotOwed: true}}
	out, err := find.Of(a).Trail(t.Context(), find.TrailOf{Campaign: "rain", User: "u1"})
	require.NoError(t, err)
	require.Equal(t, want, out.Steps[0].Sinks, "%v", out.Unread)

	// Nothing changes once the done bits are deleted: then every event counts as finished.
	require.NoError(t, a.Redis().HSet(t.Context(), k.Keys.Meta(), "done_floor", 2).Err())
	want[0].Finished, want[0].TrailWait = true, find.TrailWait{}
	out, err = find.Of(a).Trail(t.Context(), find.TrailOf{Campaign: "rain", User: "u1"})
	require.NoError(t, err)
	require.Equal(t, want, out.Steps[0].Sinks, "%v", out.Unread)

	page := (&Source{App: a}).describe(&out.Steps[0], "CNY", map[string]bool{})
	require.Equal(t, model.StoreView{Name: model.Say("Sink %s", "mine"),
		Text: model.Say("Not owed: the sink was added later, or was removed at that time.")},
		page.Stations[3])
}
