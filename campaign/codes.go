package campaign

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"slices"

	"github.com/hongbao-project/hongbao"
)

// ReadCodes reads the codes of a campaign, one code per line. Line k has the code of packet k. The file must have as
// many lines as the campaign has packets, and all codes must be valid (see hongbao.CheckCode) and different.
//
// ReadCodes returns all problems in one *SpecError, which names lines but never codes. A read error of r is Transient.
// ReadCodes uses about 60 bytes of memory per packet.
func ReadCodes(r io.Reader, packets int64) ([]string, error) {
	var p, inLines problems
	var codes []string
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxCodeLine)
	n := int64(0)
	for n <= packets && lines.Scan() {
		n++
		codes = append(codes, inLines.code(n, lines.Text()))
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		p.add("codes.file", "code_invalid",
			"line %d is longer than %d bytes, so this is not a file of codes; the rest was not read",
			n+1, maxCodeLine)
	case err != nil:
		return nil, hongbao.Errorf(hongbao.ClassTransient, "reading the campaign's codes: %w", err)
	case n > packets:
		p.add("codes.file", "code_count_mismatch",
			"the file has more than %d lines, but the campaign has %d packets; make the numbers equal",
			packets, packets)
	case n < packets:
		p.add("codes.file", "code_count_mismatch",
			"the file has %d lines, but the campaign has %d packets; make the numbers equal", n,
			packets)
	}
	inLines.duplicates(codes)
	p.found = append(p.found, inLines.found...)
	p.found = p.found[:min(len(p.found), maxProblems)]
	if err := p.err(); err != nil {
		return nil, err
	}
	return codes, nil
}

// maxCodeLine limits how much of a line is read. A line with more than MaxCodeLength bytes is reported by its number
// and the rest is read; a line with more than maxCodeLine bytes ends the reading.
const maxCodeLine = 64 << 10

// code returns the code of a line. If the code is invalid, it adds a problem and returns "".
func (p *problems) code(line int64, code string) string {
	err := hongbao.CheckCode(code)
	switch {
	case err == nil:
		return code
	case code == "":
		p.add("codes.file", "code_empty", "line %d is empty; give a code, or remove the line", line)
	default:
		p.add("codes.file", "code_invalid", "line %d: %s", line, err)
	}
	return ""
}

// duplicates adds a problem for each line that repeats the code of an earlier line, in the order of the lines.
func (p *problems) duplicates(codes []string) {
	order := make([]int32, len(codes)) // int32 is large enough: MaxPackets is far below 2^31
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(codes[a], codes[b]), cmp.Compare(a, b)) })
	type repeat struct{ line, first int32 }
	var repeats []repeat
	first := int32(0)
	for i, at := range order {
		if i == 0 || codes[at] != codes[order[i-1]] {
			first = at
		} else if codes[at] != "" { // "" is an invalid code, which has a problem already
			repeats = append(repeats, repeat{at, first})
		}
	}
	slices.SortFunc(repeats, func(a, b repeat) int { return cmp.Compare(a.line, b.line) })
	for _, r := range repeats {
		p.add("codes.file", "code_duplicate", "line %d repeats line %d; each code must be unique in its campaign", r.line+1,
			r.first+1)
	}
}
