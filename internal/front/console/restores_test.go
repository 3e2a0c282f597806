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
	for _, text := range []string{"2027-01-15 08:00:00 UTC", "1001 to 2302", ">12<", ">34<", ">56<", ">1,200<", ">7,654<",
		"a process did not answer"} {
		require.Contains(t, w.Body.String(), text)
	}
	require.NotContains(t, w.Body.String(), "not finished")

	f.fakeSource.restored[0].Silent, f.fakeSource.restored[0].Planned = false, true
	page := f.ask(t, "viewer", "/restores", nil).Body.String()
	require.NotContains(t, page, "did not answer")
	require.Contains(t, page, "not finished")

	f.fakeSource.restored[0].First, f.fakeSource.restored[0].Last = 0, 0
	require.Contains(t, f.ask(t, "viewer", "/restores", nil).Body.String(), "none is known")

	f.fakeSource.err = errors.New("the ledger is down")
	require.Equal(t, http.StatusServiceUnavailable, f.ask(t, "viewer", "/restores", nil).Code)
}
