package audit_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
)

// based returns a world in which b is sealed, and whose audits begin at the bases that the audit of the seal returned.
func based(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.grab(t, "b", 0, 20)
	w.settle(t)
	w.publish(t)
	w.grab(t, "a", 0, 30)
	w.settle(t)
	w.publish(t)
	w.leave(t, "b")
	w.cfg.Bases = w.audit(t, audit.Options{}).Bases
	require.Len(t, w.cfg.Bases, 2)
	w.seal("b")
	return w
}

// An audit begins in each partition at the first record of a campaign that is not sealed. A record of the sealed
// campaign that was published after the seal is a duplicate.
func TestTopicIsReadFromTheBases(t *testing.T) {
	t.Parallel()
	w := based(t)
	onB, onA := w.keys("b").Index(), w.keys("a").Index()
	require.EqualValues(t, 20, w.cfg.Bases[onA].First, "the first record of a")
	require.EqualValues(t, 50, w.cfg.Bases[onB].Next)
	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
	require.Equal(t, []int64{30, 0}, []int64{r.Campaigns[0].Published, r.Campaigns[1].Published})
	require.Equal(t, w.cfg.Bases, r.Bases)

	again := *w.published("b", user(3))
	w.topic.grants = append(w.topic.grants, *w.published("a", user(4)), again)
	r = w.audit(t, audit.Options{})
	require.Equal(t, map[model.DifferenceKind]int64{audit.DuplicateInTopic: 2}, r.Found, "%+v", r.Differences)
	require.Equal(t, again.EventID(), r.Differences[1].Event)
	require.Empty(t, r.Bases, "the difference must be found again")
	require.Equal(t, map[model.DifferenceKind]int64{audit.DuplicateInTopic: 2}, w.audit(t, audit.Options{Full: true}).Found)

	expired := again.Time.Add(time.Hour)
	w.topic.scan.Since = []time.Time{expired, expired}
	require.Equal(t, map[model.DifferenceKind]int64{audit.DuplicateInTopic: 1}, w.audit(t, audit.Options{}).Found,
		"the first record of the packet of b may have expired")
}

// Without a topic base a fault before the base is found, and with it is not: only a full audit finds it.
func TestFullAuditReadsBehindTheBases(t *testing.T) {
	t.Parallel()
	w := based(t)
	w.topic.grants = slices.DeleteFunc(w.topic.grants, func(g hongbao.Grant) bool {
		return g.Campaign == "b" && g.User == user(5)
	})
	w.settled("b", user(6)).User = "mallory"
	for i := range w.cfg.Bases {
		w.cfg.Bases[i].First--
		w.cfg.Bases[i].Next--
	}
	require.Empty(t, w.audit(t, audit.Options{}).Found)
	r := w.audit(t, audit.Options{Full: true})
	require.Equal(t, map[model.DifferenceKind]int64{audit.MissingInTopic: 1, audit.Different: 1}, r.Found, "%+v",
		r.Differences)
}
