package app

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The files of exports and archives of any campaigns can be in one folder.
func TestFilesOfExportsAndArchives(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, exportFile("rain", "2026-02-18", true), archiveFile("rain-2026-02-18"))
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[a-z](-2026-02-1[0-9]|\.archive|\.csv|\.unfinished|\.manifest){0,3}`)
		day := rapid.StringMatching(`2026-02-1[0-9]`)
		of := func() (name, what string) {
			campaign, date, finished := id.Draw(t, "id"), day.Draw(t, "day"), rapid.Bool().Draw(t, "finished")
			switch rapid.IntRange(0, 1).Draw(t, "kind") {
			case 0:
				return exportFile(campaign, date, finished), fmt.Sprint("export ", campaign, date, finished)
			default:
				return archiveFile(campaign), "archive " + campaign
			}
		}
		one, first := of()
		two, second := of()
		if first != second {
			require.NotEqual(t, one, two, "%s and %s", first, second)
		}
	})
}
