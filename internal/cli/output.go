package cli

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/base/answers"
)

// wantsJSON reports whether --json is set.
func wantsJSON(cmd *cobra.Command) bool {
	on, err := cmd.Flags().GetBool("json")
	return on && err == nil
}

// printAnswer prints an answer as text, or as one JSON document with --json.
func printAnswer(cmd *cobra.Command, answer any, write func(w io.Writer) error) error {
	if wantsJSON(cmd) {
		return wrap("print the answer", answers.Write(cmd.OutOrStdout(), answer, ""))
	}
	out := cmd.OutOrStdout()
	return wrap("print the answer", write(plain{out, wantsColour(isTerminal(out), os.Getenv), terminalWidth(out)}))
}

// printJSON prints indented JSON.
func printJSON(cmd *cobra.Command, v any) error {
	return wrap("print the answer", answers.Write(cmd.OutOrStdout(), v, "  "))
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// plain is a writer for terminals. It escapes characters that could move the cursor or turn the direction of a line
// around, because anyone may have written the text that a command prints.
type plain struct {
	w io.Writer
	// colour says that columns may show their styles as colours.
	colour bool
	// width is the most places of a table's line; 0 means no limit.
	width int
}

// Write implements io.Writer.
func (p plain) Write(text []byte) (int, error) {
	if _, err := p.w.Write(escape(text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// escape makes a text harmless for a terminal.
func escape(text []byte) []byte {
	safe := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		c, size := utf8.DecodeRune(text[i:])
		if harmless(c) || c == utf8.RuneError { // the rest of a character may come with the next call
			safe = append(safe, text[i:i+size]...)
		} else {
			safe = append(safe, strings.Trim(strconv.QuoteRuneToASCII(c), "'")...)
		}
		i += size
	}
	return safe
}

// harmless reports whether a terminal only prints a character. Zero-width joiners are parts of emoji and of some scripts.
func harmless(c rune) bool {
	return unicode.IsGraphic(c) || strings.ContainsRune("\n\t\u200c\u200d", c)
}
