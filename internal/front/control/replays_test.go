package control

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/ops"
)

// A replay is counted by a dry run, then run, and then listed. Its name can't be used for another range.
func TestReplays(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	for i := range 3 {
		d.grab("rain", fmt.Sprint("u", i))
	}
	var answer replayAnswer
	d.post("operator", "/v1/replays/repair", `{"to":"balance","dry_run":true}`).OK(t, http.StatusOK, &answer)
	require.EqualValues(t, 3, answer.Report.Matched)
	d.get("viewer", "/v1/replays/repair").Refused(t, "unknown_replay")
	d.post("operator/rain*", "/v1/replays/repair", `{"to":"balance"}`).Refused(t, "forbidden")
	d.post("operator/rain*", "/v1/replays/repair", `{"to":"balance","campaign":"snow"}`).Refused(t, "unknown_campaign")
	d.post("operator/rain*", "/v1/replays/repair", `{"to":"balance","campaign":"rain"}`).OK(t, http.StatusOK, &answer)
	require.True(t, answer.Report.Finished)
	require.EqualValues(t, 3, answer.Report.Delivered)
	d.post("operator", "/v1/replays/repair", `{"to":"balance"}`).Refused(t, "replay_differs")
	var state replayState
	d.get("viewer", "/v1/replays/repair").OK(t, http.StatusOK, &state)
	require.True(t, state.Finished)
	require.False(t, state.Running)
	require.Equal(t, *state.Events, state.Looked)
	var all replaysAnswer
	d.get("viewer", "/v1/replays").OK(t, http.StatusOK, &all)
	require.Equal(t, []replayState{state}, all.Replays)
	d.post("operator", "/v1/replays/repair/stop", "{}").Refused(t, "not_running")
	for body, code := range map[string]string{
		`{}`: "invalid_value", `{"to":"kafka"}`: "unknown_sink", `{"to":"topic:"}`: "invalid_value",
		`{"to":"topic:grants-copy","missing":true}`: "invalid_value", `{"to":"balance","dead":"balance"}`: "invalid_value",
		`{"to":"balance","shard":"1"}`: "invalid_value", `{"to":"balance","first_seq":2,"last_seq":1}`: "invalid_value",
		`{"to":"balance","rate":0}`: "invalid_value", `{"to":"balance","odd":0}`: "unknown_field",
		`{"to":"balance","campaign":"drizzle"}`: "unknown_campaign",
	} {
		d.post("operator", "/v1/replays/other", body).Refused(t, code)
	}
	d.post("operator", "/v1/replays/own", `{"to":"topic:`+d.app.Config.Publisher.Topic+`"}`).Refused(t, "invalid_value", "its own topic: the replay must not start")
	d.post("operator", "/v1/replays/own", `{"to":"topic:copy"}`).Refused(t, "invalid_value", "it is not listed")
	d.post("operator", "/v1/replays/"+strings.Repeat("a", 58), `{"to":"balance"}`).Refused(t, "invalid_name")
}

// A key's scope hides the replays of other campaigns. Neither a new replay with the same name nor a stop reveals
// that such a replay exists, or its campaign or user.
func TestReplaysOutsideOfTheScope(t *testing.T) {
	t.Parallel()
	d := setup(t, options{})
	d.campaign("rain", 10, 1_000)
	d.campaign("snow", 10, 1_000)
	d.grab("rain", "u1")
	d.grab("snow", "alice")
	d.post("operator", "/v1/replays/theirs", `{"to":"balance","campaign":"snow","user":"alice"}`).OK(t, http.StatusOK, nil)
	r := d.post("operator/rain*", "/v1/replays/theirs", `{"to":"balance","campaign":"rain"}`)
	r.Refused(t, "replay_differs")
	require.NotContains(t, r.Text, "snow")
	require.NotContains(t, r.Text, "alice")
	// The console starts a replay by the same operation.
	local := &ops.Local{App: d.c.app, Caller: &access.Caller{Key: "k", Role: access.RoleOperator, Campaigns: []string{"rain*"}}}
	_, err := local.StartReplay(t.Context(), ops.Replay{Name: "theirs", To: "balance", Campaign: "rain", Patience: time.Minute})
	require.ErrorIs(t, err, replay.ErrOtherReplay)
	require.NotContains(t, err.Error(), "snow")
	require.NotContains(t, err.Error(), access.Hash("alice")[:8])
	for _, name := range []string{"theirs", "none"} {
		stop := d.post("operator/rain*", "/v1/replays/"+name+"/stop", "{}")
		stop.Refused(t, "unknown_replay", name)
	}
	require.Equal(t, d.post("operator/rain*", "/v1/replays/none/stop", "{}").Body["detail"],
		d.post("operator/rain*", "/v1/replays/theirs/stop", "{}").Body["detail"])
	d.post("operator", "/v1/replays/theirs/stop", "{}").Refused(t, "not_running")
}
