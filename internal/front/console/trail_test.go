package console

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
)

// The page of a trail has the sentence of a grant, and its path with the time of each step in the campaign's zone, in both
// languages.
func TestATrailIsASentenceAndAPath(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	at := time.Date(2026, 2, 17, 12, 0, 3, 0, time.UTC)
	why := model.Say("%s: %s", model.Say("not announced yet"), model.Say("no worker runs for sink %s", "kafka"))
	f.trails = model.Trails{Zone: "Asia/Shanghai", List: []model.Trail{{Packet: 3, User: "u1", Amount: "1.85 CNY",
		Clauses: []model.Sentence{model.Say("%s won %s at %s", "<u1>", model.Sums{{Currency: "CNY", Amount: 185}}, model.Instant{At: at, Zone: "Asia/Shanghai"}),
			model.Say("paid"), why},
		Steps: []model.TrailStep{{At: at, State: string(ops.WhyDelivered), Name: model.Say("won"), Text: model.Say("packet %d, event %s", 3, "0-3")},
			{State: string(ops.WhyWaiting), Name: model.Say("not announced")}}}}}
	const path = "/trail?campaign=rain&user=u1"
	page := f.ask(t, "viewer", path, nil).Body.String()
	const local = `<time datetime="2026-02-17T12:00:03Z" title="2026-02-17 12:00:03 UTC">17 Feb 2026 20:00:03</time>`
	require.Contains(t, page, "<span>&lt;u1&gt; won 1.85 CNY at "+local+"</span>, <span>paid</span>, <span>not announced yet: no worker runs for "+
		"sink kafka</span>.")
	require.Contains(t, page, `<li class="done"><p class="t">`+local)
	require.Contains(t, page, `<li class="todo"><p class="t"></p>`)
	require.Contains(t, page, "<code>hongbao why rain u1</code>")
	tongues, err := newTongues()
	require.NoError(t, err)
	chinese, err := tongues[1].markup(f.trails.List[0].Clauses[2])
	require.NoError(t, err)
	require.Equal(t, "尚未通知下游：下游 kafka 没有 worker", string(chinese))

	f.trails = model.Trails{Nothing: model.Say("%s has won nothing in %s: %s.", "u1", "rain", model.Say("the campaign opens %s",
		model.Say("at %s", model.Instant{At: at, Zone: "Asia/Shanghai"})))}
	page = f.ask(t, "viewer", path, nil).Body.String()
	require.Contains(t, page, "u1 has won nothing in rain: the campaign opens at 17 Feb 2026 20:00:03.")
	require.NotContains(t, page, "Neither Redis nor the ledger")
}
