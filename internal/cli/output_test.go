package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/access"
)

// Text from the stores can't control the terminal of the person who reads it. With --json it is unchanged.
func TestTextCantControlTheTerminal(t *testing.T) {
	t.Parallel()
	page := access.JournalPage{Entries: []access.Entry{{ID: "x", Who: "cli:\x1b[2Jann\u009b1m\u202e红包\x7f", Action: "pause\tit",
		Details: map[string]any{"why": "\u009b2J"}}}}
	cmd, out := &cobra.Command{}, &bytes.Buffer{}
	cmd.Flags().Bool("json", false, "")
	cmd.SetOut(out)
	write := func() string {
		out.Reset()
		require.NoError(t, printAnswer(cmd, &page, func(w io.Writer) error { return writeJournal(w, &page) }))
		return out.String()
	}
	require.Contains(t, write(), `cli:\x1b[2Jann\u009b1m\u202e红包\x7f`)
	require.NotContains(t, out.String(), "\u009b")
	require.NoError(t, cmd.Flags().Set("json", "true"))
	var again access.JournalPage
	require.NoError(t, json.Unmarshal([]byte(write()), &again))
	require.Equal(t, page.Entries, again.Entries)
}

// A character in two calls arrives whole.
func FuzzPlain(f *testing.F) {
	f.Add("红包\x1b[m", 1)
	f.Fuzz(func(t *testing.T, text string, cut int) {
		if !utf8.ValidString(text) || cut < 0 || cut > len(text) {
			return
		}
		var whole, parts bytes.Buffer
		for _, part := range []string{text[:cut], text[cut:]} {
			_, err := plain{w: &parts}.Write([]byte(part))
			require.NoError(t, err)
		}
		n, err := plain{w: &whole}.Write([]byte(text))
		require.NoError(t, err)
		require.Equal(t, len(text), n)
		if utf8.ValidString(text[:cut]) {
			require.Equal(t, whole.String(), parts.String())
		}
		require.True(t, utf8.Valid(parts.Bytes()))
		require.NotContains(t, whole.String(), "\x1b")
	})
}
