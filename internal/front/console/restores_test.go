package console

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
)

func TestRestores(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	require.Contains(t, f.ask(t, "viewer", "/restores", nil).Body.String(), "no lost writes")

	f.fakeSource.restored = []model.Restored{{Shard: 3, Epoch: 5, At: time.Unix(1_800_000_000, 0),
		RestoreCounts: model.RestoreCounts{
			Ledger: 12, Topic: 34, Witnesses: 56, Unknown: 1_200, Silent: true, Withheld: 7_654, First: 1_001, Last: 2_302}}}
	w := f.ask(t, "viewer", "/restores", nil)
	require.Equal(t, http.StatusOK, w.Code)
	for _, text := range []string{"2027-01-15 08:00:00 UTC", "1001 to 2302", "ledger 12, topic 34, producers 56", ">1,200<", ">7,654<",
		"a process did not answer"} {
		require.Contains(t, w.Body.String(), text)
	}
	require.NotContains(t, w.Body.String(), "not finished")
	require.Contains(t, w.Body.String(), "No packet waits for a decision.")

	f.fakeSource.restored[0].Silent, f.fakeSource.restored[0].Planned = false, true
	page := f.ask(t, "viewer", "/restores", nil).Body.String()
	require.NotContains(t, page, "did not answer")
	require.Contains(t, page, "not finished")

	f.fakeSource.restored[0].First, f.fakeSource.restored[0].Last = 0, 0
	require.Contains(t, f.ask(t, "viewer", "/restores", nil).Body.String(), "none is known")

	f.held = []model.Withheld{{Campaign: "rain", Packets: 2}, {Campaign: "other", Packets: 1}}
	page = f.ask(t, "viewer", "/restores", nil).Body.String()
	for _, text := range []string{"3 packets are withheld", `<a href="/campaigns/rain">Spring rain</a>`, "hongbao hole list other",
		"hongbao hole grant", "hongbao hole release", "After the close nobody can grant them"} {
		require.Contains(t, page, text)
	}
	f.heldErr = errors.New("Redis is down")
	page = f.ask(t, "viewer", "/restores", nil).Body.String()
	require.Contains(t, page, "The withheld packets could not be read.")
	require.NotContains(t, page, "No packet waits")

	f.fakeSource.err = errors.New("the ledger is down")
	require.Equal(t, http.StatusServiceUnavailable, f.ask(t, "viewer", "/restores", nil).Code)
}
