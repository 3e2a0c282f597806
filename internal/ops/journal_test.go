package ops

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
)

// The place of every entry that the journal can have begins a page, also that of a note.
func TestEveryPlaceOfTheJournal(t *testing.T) {
	t.Parallel()
	for _, id := range []string{access.NewEntry(t.Context(), access.Grab).ID, access.NoteID("junk"), "unreadable-" + access.Hash("junk")} {
		after := fmt.Sprintf("%d-%s", time.Now().UnixMilli(), id)
		require.NoError(t, CheckJournal(&access.JournalQuery{After: after, Limit: 1}), after)
	}
	for _, after := range []string{"x", "1", "1-", "-x", "1-a b", "1-\x1b"} {
		require.Error(t, CheckJournal(&access.JournalQuery{After: after, Limit: 1}), after)
	}
	require.NoError(t, CheckJournal(&access.JournalQuery{Limit: access.MaxEntries}))
	require.Error(t, CheckJournal(&access.JournalQuery{Limit: access.MaxEntries + 1}))
}
