package audit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
)

// acknowledge adds a person's acknowledgement of a difference to the audit's configuration.
func (w *world) acknowledge(t *testing.T, d *model.Difference) {
	t.Helper()
	a, err := audit.Acknowledge(d)
	require.NoError(t, err)
	a.By, a.Why, a.Until = "ann", "subscribers drop the copy", time.Now().Add(time.Hour)
	w.cfg.Acknowledged = append(w.cfg.Acknowledged, a)
}

// The report lists an acknowledged difference but does not count it. A second copy of the same grant in the topic is
// counted.
func TestAcknowledged(t *testing.T) {
	t.Parallel()
	w := busy(t)
	again := func() { w.topic.grants = append(w.topic.grants, *w.published("a", "u0003")) }
	again()
	first := w.audit(t, audit.Options{})
	require.Equal(t, kinds(audit.DuplicateInTopic), first.Found)
	known := first.Differences[0]
	require.NotEmpty(t, known.Receipt, "the acknowledgement must match even though the difference names a receipt")
	w.acknowledge(t, &known)

	r := w.audit(t, audit.Options{})
	require.Equal(t, model.Agrees, r.Verdict)
	require.Empty(t, r.Found)
	require.Empty(t, r.Differences)
	require.Empty(t, r.Remedies)
	require.Zero(t, r.Total.Duplicates)
	require.Len(t, r.Acknowledged, 1)
	require.Equal(t, "ann", r.Acknowledged[0].By)
	var text strings.Builder
	require.NoError(t, r.Write(&text))
	require.Contains(t, text.String(), "Acknowledged by a person: 1.")
	require.Contains(t, text.String(), "subscribers drop the copy")

	again()
	r = w.audit(t, audit.Options{})
	require.Equal(t, kinds(audit.DuplicateInTopic), r.Found, "another copy")
	require.Len(t, r.Acknowledged, 1)
	w.acknowledge(t, &r.Differences[0])
	require.Equal(t, model.Agrees, w.audit(t, audit.Options{}).Verdict)
}

// With MaxListed 1 an acknowledged difference leaves room for the second difference in the list. An acknowledgement
// with another detail covers nothing.
func TestAcknowledgedBeforeTheListEnds(t *testing.T) {
	t.Parallel()
	w := busy(t)
	w.cfg.MaxListed = 1
	for _, u := range []string{"u0003", "u0004"} {
		w.topic.grants = append(w.topic.grants, *w.published("a", u))
	}
	first := w.audit(t, audit.Options{})
	require.EqualValues(t, 2, first.Found[audit.DuplicateInTopic])
	w.acknowledge(t, &first.Differences[0])
	r := w.audit(t, audit.Options{})
	require.EqualValues(t, 1, r.Found[audit.DuplicateInTopic])
	require.NotEqual(t, first.Differences[0], r.Differences[0], "the second difference is listed")
	changed := r.Differences[0]
	changed.Detail += "?"
	w.acknowledge(t, &changed)
	require.EqualValues(t, 1, w.audit(t, audit.Options{}).Found[audit.DuplicateInTopic], "its detail differs")
}

// A double credit can't be acknowledged, even if an acknowledgement was written into the ledger. The report names no
// remedy that moves money, even if the ledger's inconsistency is acknowledged.
func TestNotAcknowledged(t *testing.T) {
	t.Parallel()
	w := busy(t)
	again(w.ledger.grants, "b", "u0003")
	drop(w.ledger.grants, "a", "u0003")
	w.ledger.problems = []books.Difference{{What: "a sum", Want: 1, Got: 2}}
	for range 2 {
		r := w.audit(t, audit.Options{})
		require.Equal(t, kinds(audit.DoubleCredit, audit.LedgerUnbalanced, audit.Lost), r.Found)
		for i := range r.Differences {
			d := &r.Differences[i]
			_, err := audit.Acknowledge(d)
			require.Equal(t, d.Kind == audit.DoubleCredit, err != nil)
			if d.Kind == audit.DoubleCredit { // as if someone wrote the acknowledgement into the ledger by hand
				w.cfg.Acknowledged = append(w.cfg.Acknowledged, model.Acknowledgement{Kind: string(d.Kind), Where: d.Where,
					Campaign: d.Campaign, Packet: d.Packet, Event: d.Event, Detail: d.Detail})
			}
		}
	}
	drop(w.ledger.grants, "b", "u0003")
	w.ledger.grants["b"] = append(w.ledger.grants["b"], *w.published("b", "u0003"))
	r := w.audit(t, audit.Options{})
	for i := range r.Differences {
		if r.Differences[i].Kind == audit.LedgerUnbalanced {
			w.acknowledge(t, &r.Differences[i])
		}
	}
	r = w.audit(t, audit.Options{})
	require.Equal(t, kinds(audit.Lost), r.Found)
	require.Contains(t, r.Remedies[audit.Lost].Do, "nothing yet")
	_, err := audit.Acknowledge(&model.Difference{Kind: "typo"})
	require.ErrorContains(t, err, "no difference of kind")
}
