package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
	"golang.org/x/text/width"
)

// style is the meaning of a cell, which a terminal shows as a colour. Its value is a noncharacter of Unicode, which no
// text has, at the head of the cell.
type style rune

// The styles.
const (
	good style = '\ufdd0' + iota
	warn
	bad
	faint
)

// sgr has the escape sequence of each style.
var sgr = map[style]string{good: "\x1b[32m", warn: "\x1b[33m", bad: "\x1b[31m", faint: "\x1b[2m"}

const sgrEnd = "\x1b[0m"

// styled marks a cell with a style.
func styled(s style, text string) string { return string(s) + text }

// styledIf marks a cell with a style if on is true.
func styledIf(on bool, s style, text string) string {
	if on {
		return styled(s, text)
	}
	return text
}

// wantsColour reports whether output to a terminal has colours. See https://no-color.org and
// https://bixense.com/clicolors.
func wantsColour(terminal bool, env func(string) string) bool {
	return terminal && env("NO_COLOR") == "" && env("CLICOLOR") != "0" && env("TERM") != "dumb"
}

// isTerminal reports whether a writer is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalWidth returns the places of a line of a terminal, or 0 if the writer is no terminal.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	places, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return places
}

// columns aligns cells, which end with a tab or a newline. Unlike text/tabwriter it counts the places that a terminal
// needs for a character. A line without a tab ends a table. A table that is wider than the terminal becomes several
// tables, each of which begins with the first column.
type columns struct {
	to   io.Writer
	text bytes.Buffer
	// cut says that the lines of a wide table are cut at the terminal's width, so that it stays one table. Its last column
	// is the one that people miss least.
	cut bool
}

func newColumns(w io.Writer) *columns { return &columns{to: w} }

// Write implements io.Writer.
func (c *columns) Write(text []byte) (int, error) { return c.text.Write(text) }

// Flush writes all lines.
func (c *columns) Flush() error {
	out, _ := c.to.(plain)
	if out.w == nil {
		out.w = c.to
	}
	width := out.width
	if c.cut {
		width = 0
	}
	var text strings.Builder
	var table [][]string
	for line := range strings.SplitSeq(strings.TrimSuffix(c.text.String(), "\n"), "\n") {
		cells := strings.Split(line, "\t")
		if len(cells) == 1 {
			alignWithin(&text, table, out.colour, width)
			table = nil
		}
		table = append(table, cells)
		if len(cells) == 1 {
			alignWithin(&text, table, out.colour, width)
			table = nil
		}
	}
	alignWithin(&text, table, out.colour, width)
	c.text.Reset()
	if c.cut && out.width > 0 {
		return writeCut(out.w, text.String(), out.width)
	}
	_, err := io.WriteString(out.w, text.String())
	return err
}

// longText is the least width of a last column that holds sentences. They may wrap, so they do not make a table wide.
const longText = 20

// alignWithin writes one table, as several tables if it does not fit into the width. A width of 0 has no limit.
func alignWithin(out *strings.Builder, table [][]string, colour bool, width int) {
	groups := [][2]int{}
	if width > 0 && len(table) > 1 {
		groups = split(columnWidths(table), width)
	}
	if len(groups) < 2 {
		align(out, table, colour)
		return
	}
	for i, g := range groups {
		if i > 0 {
			out.WriteByte('\n')
		}
		part := make([][]string, 0, len(table))
		for _, row := range table {
			first, last := min(g[0], len(row)), min(g[1], len(row))
			part = append(part, append(row[:1:1], row[first:last]...))
		}
		align(out, part, colour)
	}
}

// columnWidths returns the width of each column, of the last one too.
func columnWidths(table [][]string) (widths []int) {
	for _, row := range table {
		for i, cell := range row {
			text, _ := splitCell(cell)
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], places(text))
		}
	}
	return widths
}

// split returns the columns, from the second one on, that fit into a line beside the first one. The result has one
// group if the table fits.
func split(widths []int, width int) (groups [][2]int) {
	sum := 0
	for i, w := range widths {
		if i < len(widths)-1 || w < longText {
			sum += w + 2
		}
	}
	if sum-2 <= width || len(widths) < 3 {
		return [][2]int{{1, len(widths)}}
	}
	from, used := 1, widths[0]
	for i := 1; i < len(widths); i++ {
		if used += 2 + widths[i]; used > width && i > from {
			groups = append(groups, [2]int{from, i})
			from, used = i, widths[0]+2+widths[i]
		}
	}
	return append(groups, [2]int{from, len(widths)})
}

// align writes one table.
func align(out *strings.Builder, table [][]string, colour bool) {
	var widths []int
	for _, row := range table {
		for i, cell := range row[:len(row)-1] { // the last cell of a row may be longer than its column
			text, _ := splitCell(cell)
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], places(text))
		}
	}
	for _, row := range table {
		var line strings.Builder
		for i, cell := range row {
			text, s := splitCell(cell)
			pad := ""
			if i < len(row)-1 {
				pad = strings.Repeat(" ", widths[i]-places(text)+2)
			}
			if start := sgr[s]; start != "" && colour && text != "" {
				text = start + text + sgrEnd
			}
			line.WriteString(text + pad)
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// splitCell returns the harmless text of a cell, and its style.
func splitCell(cell string) (text string, s style) {
	first, size := utf8.DecodeRuneInString(cell)
	if _, ok := sgr[style(first)]; ok {
		s, cell = style(first), cell[size:]
	}
	return string(escape([]byte(cell))), s
}

// places returns how many places of a line a terminal needs for a text.
func places(text string) (n int) {
	for _, c := range text {
		n += placesOf(c)
	}
	return n
}

func placesOf(c rune) int {
	if unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(c).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	default:
		return 1
	}
}

// writeCut writes lines, each cut to the width of a terminal.
func writeCut(w io.Writer, text string, width int) error {
	for line := range strings.Lines(text) {
		if _, err := fmt.Fprintln(w, cutLine(strings.TrimSuffix(line, "\n"), width)); err != nil {
			return err
		}
	}
	return nil
}

// cutLine shortens a line to the width of a terminal. It keeps the sequences of colours.
func cutLine(line string, most int) string {
	text := line
	for _, start := range sgr {
		text = strings.ReplaceAll(text, start, "")
	}
	if places(strings.ReplaceAll(text, sgrEnd, "")) <= most {
		return line
	}
	var out strings.Builder
	n, full, sequence := 0, false, false
	for _, c := range line {
		switch {
		case c == '\x1b':
			sequence = true
		case sequence:
		case full || n+placesOf(c) > most-1:
			full = true
			continue
		default:
			n += placesOf(c)
		}
		out.WriteRune(c)
		sequence = sequence && c != 'm'
	}
	return out.String() + "…"
}
