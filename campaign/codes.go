package campaign

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"slices"

	"github.com/hongbao-project/hongbao"
)

// ReadCodes reads the codes of a campaign, one a line. Line k has the code of packet k, and the packets are handed
// out in that order. There must be as many codes as packets, each one valid (see hongbao.CheckCode) and none twice.
// ReadCodes returns every problem in one *SpecError, which names lines and never codes. An error of r itself is
// Transient. ReadCodes takes some 60 bytes a packet.
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
		p.add("codes.file", "code_invalid", "line %d is above %d bytes, what follows was not read; it is no file of codes",
			n+1, maxCodeLine)
	case err != nil:
		return nil, hongbao.Errorf(hongbao.ClassTransient, "reading the campaign's codes: %w", err)
	case n > packets:
		p.add("codes.file", "code_count_mismatch", "it has more than %d lines, the campaign has %d packets; make them equal",
			packets, packets)
	case n < packets:
		p.add("codes.file", "code_count_mismatch", "it has %d lines, the campaign has %d packets; make them equal", n,
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

// maxCodeLine bounds a line of a file of codes. A line between MaxCodeLength and maxCodeLine is reported with its
// number.
const maxCodeLine = 64 << 10

// code returns the code of a line. It notes an invalid code and returns "" for it.
func (p *problems) code(line int64, code string) string {
	err := hongbao.CheckCode(code)
	switch {
	case err == nil:
		return code
	case code == "":
		p.add("codes.file", "code_empty", "line %d is empty; give a code, or take the line out", line)
	default:
		p.add("codes.file", "code_invalid", "line %d: %s", line, err)
	}
	return ""
}

// duplicates notes each line that repeats an earlier one, in the order of the lines.
func (p *problems) duplicates(codes []string) {
	order := make([]int32, len(codes)) // MaxPackets is far below 2^31
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
		} else if codes[at] != "" { // an invalid code is already noted
			repeats = append(repeats, repeat{at, first})
		}
	}
	slices.SortFunc(repeats, func(a, b repeat) int { return cmp.Compare(a.line, b.line) })
	for _, r := range repeats {
		p.add("codes.file", "code_duplicate", "line %d repeats line %d; a code is unique in its campaign", r.line+1,
			r.first+1)
	}
}
