package console

import (
	"context"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// dark is a source whose Redis can be down.
type dark struct {
	*fakeSource
	down bool
}

func (d *dark) Sinks(ctx context.Context) ([]deliveries.SinkStatus, error) {
	if d.down {
		return nil, hongbao.Outagef(hongbao.ClassTransient, "redis is down")
	}
	return d.fakeSource.Sinks(ctx)
}

// Each page has the badges and the alarm of the deployment, except for a key with a scope.
func TestBadgesAndAlarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &dark{}
		f := setup(t, func(_ *configs.Console, d *Deps) {
			source.fakeSource = d.Source.(*fakeSource)
			d.Source = source
		})
		page := func(role string) string { return f.ask(t, role, "/journal", nil).Body.String() }
		require.Contains(t, page("viewer"), `>Dead letters<span class="count">1</span>`)
		require.Contains(t, page("viewer"), `>Quarantine<span class="count">1</span>`)
		require.Contains(t, page("viewer"), `<span class="count">No worker</span>`)
		require.NotContains(t, page("viewer"), `class="alarm"`, "nothing waits for the worker")
		require.NotContains(t, f.ask(t, "treasurer:rain", "/letters?campaign=rain", nil).Body.String(), `class="count"`)

		source.down = true
		require.NotContains(t, page("viewer"), `class="alarm"`, "it is read at most every three seconds")
		time.Sleep(glanceAge) //nolint:forbidigo // the bubble's clock
		since := time.Now().UTC().Format(time.TimeOnly)
		require.Contains(t, page("viewer"), "Redis can&#39;t be read")
		time.Sleep(time.Minute) //nolint:forbidigo // the bubble's clock
		require.Contains(t, page("viewer"), since)
		require.NotContains(t, page("viewer"), `>Dead letters<span`, "a number that is not known is no number")
	})
}

func TestAlarms(t *testing.T) {
	t.Parallel()
	away := hongbao.Outagef(hongbao.ClassTransient, "down")
	deserted := []deliveries.SinkStatus{{Sink: configs.SinkBalance, State: deliveries.SinkNoWorker, Waiting: 7}}
	require.Equal(t, "redis", alarmOf(nil, away, away).code)
	require.Equal(t, "ledger", alarmOf(deserted, nil, away).code)
	require.Equal(t, "No worker runs for payments: 7 winners wait for their money.", alarmOf(deserted, nil, nil).Say.String())
	deserted[0].Waiting = 0
	require.Nil(t, alarmOf(deserted, nil, nil))
	require.Equal(t, deliveries.SinkDown, worse(deliveries.SinkBehind, deliveries.SinkDown))
	require.Equal(t, deliveries.SinkBehind, worse(deliveries.SinkBehind, deliveries.SinkWorking))
	require.Empty(t, worse("", deliveries.SinkWorking))
}

// The sheet has rules only for classes that a page, the script or the Go code uses.
func TestTheSheetHasNoRuleForNothing(t *testing.T) {
	t.Parallel()
	script, err := fs.ReadFile(staticFiles, "static/console.js")
	require.NoError(t, err)
	used := "ok wait bad info calm good warn rain granted paid announced " + string(script) // the Go code returns the first of them
	require.NoError(t, fs.WalkDir(templateFiles, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(templateFiles, path)
		used += string(text)
		return err
	}))
	f := setup(t, nil)
	w := httptest.NewRecorder()
	f.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/static/console.css", nil))
	sheet := regexp.MustCompile(`(?s)/\*.*?\*/|\{[^{}]*\}`).ReplaceAllString(w.Body.String(), "")
	for _, class := range regexp.MustCompile(`\.([a-z][\w-]*)`).FindAllStringSubmatch(sheet, -1) {
		require.True(t, regexp.MustCompile(`\b`+class[1]+`\b`).MatchString(used), class[1])
	}
}
