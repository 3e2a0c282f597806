package audit_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/store"
)

// A grant whose dead letter was dropped is listed as dropped, not as a difference. A grant whose dead letter was
// requeued is a difference until its sink has the grant.
func TestResolvedLetters(t *testing.T) {
	t.Parallel()
	for what, differs := range map[string]bool{model.LetterDropped: false, model.LetterRequeued: true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := busy(t)
			w.deadLetter(t, "the account is closed")
			k := w.keys("a")
			letters, err := k.Group(ledgerGroup).Letters(t.Context(), "-", "+", 10)
			require.NoError(t, err)
			require.Len(t, letters, 1)
			decided, err := k.ResolveLetter(t.Context(), &store.Resolution{
				Sink: ledgerGroup, Letter: letters[0].ID, What: what,
				Decision: stream.Decision{By: "ann", Why: "paid\nby hand"},
			})
			require.NoError(t, err)
			require.True(t, decided)
			r := w.audit(t, audit.Options{})
			require.Zero(t, r.Found[audit.DeadLetter])
			var text strings.Builder
			require.NoError(t, r.Write(&text))
			if differs {
				require.Equal(t, map[model.DifferenceKind]int64{audit.Lost: 1}, r.Found)
				require.Empty(t, r.Dropped)
				return
			}
			require.Equal(t, model.Agrees, r.Verdict, "%v", r.Differences)
			require.Equal(t, int64(1), r.Total.Dropped)
			require.Len(t, r.Dropped, 1)
			require.Contains(t, r.Dropped[0].Detail, "was dropped by ann")
			require.Contains(t, text.String(), `Not delivered by a person's decision: 1`)
			require.Contains(t, text.String(), `"paid\nby hand"`)
		})
	}
}

// A person decided not to pay a grant. The grant is never a difference, even after its campaign has left Redis and the
// stream is trimmed.
func TestDecidedAfterTheEnd(t *testing.T) {
	t.Parallel()
	for what, decide := range map[string]func(t *testing.T, w *world){
		"void in quarantine": func(_ *testing.T, w *world) {
			w.ledger.quarantined = []model.Quarantined{{ID: 1, Reason: "amount_not_planned", Grant: *w.settled("a", "u0003"),
				Resolution: "void: forged"}}
			drop(w.ledger.grants, "a", "u0003")
		},
		"a dropped letter": func(t *testing.T, w *world) {
			w.deadLetter(t, "the account is closed")
			k := w.keys("a")
			letters, err := k.Group(ledgerGroup).Letters(t.Context(), "-", "+", 10)
			require.NoError(t, err)
			require.Len(t, letters, 1)
			_, err = k.ResolveLetter(t.Context(),
				&store.Resolution{Sink: ledgerGroup, Letter: letters[0].ID, What: model.LetterDropped,
					Decision: stream.Decision{By: "ann", Why: "closed"}})
			require.NoError(t, err)
		},
		"a letter that was dropped long ago": func(t *testing.T, w *world) {
			w.deadLetter(t, "the account is closed")
			k := w.keys("a")
			letters, err := k.Group(ledgerGroup).Letters(t.Context(), "-", "+", 10)
			require.NoError(t, err)
			_, err = k.ResolveLetter(t.Context(),
				&store.Resolution{Sink: ledgerGroup, Letter: letters[0].ID, What: model.LetterDropped,
					Decision: stream.Decision{By: "ann", Why: "closed"}})
			require.NoError(t, err)
			x, err := k.ExpireLetters(t.Context(), &store.OldLetters{Sink: ledgerGroup, Limit: 9})
			require.NoError(t, err)
			require.Equal(t, 1, x.Deleted, "the record lost its user")
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := busy(t)
			decide(t, w)
			r := w.audit(t, audit.Options{})
			require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
			w.leave(t, "a")
			r = w.audit(t, audit.Options{})
			require.Equal(t, model.Agrees, r.Verdict, "%+v", r.Differences)
		})
	}
}
