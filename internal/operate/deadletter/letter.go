package deadletter

import (
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/model"
)

// letterVersion is the version of the letters that lua/dead_letter.lua writes.
const letterVersion = "2"

// parse reads a letter. It leaves invalid parts empty, so that a person can still look at the letter and drop it.
func parse(sink string, shard int, id string, values []string) model.Letter {
	l := model.Letter{ID: sink + "/" + strconv.Itoa(shard) + "/" + id, Sink: sink, Shard: shard, Fields: []string{}}
	version := ""
	for i := 0; i+1 < len(values); i += 2 {
		name, value := values[i], values[i+1]
		field, ofEntry := strings.CutPrefix(name, "entry.")
		switch {
		case ofEntry:
			l.Fields = append(l.Fields, field, value)
		case name == "v":
			version = value
		case name == "entry_json":
			l.Fields = append(l.Fields, name, value)
		case name == "entry":
			l.Entry = value
		case name == "seq":
			l.Seq = number(value)
		case name == "grant":
			l.Line = value
		case name == "class":
			l.Class = value
		case name == "reason":
			l.Reason = value
		case name == "attempts":
			l.Attempts = number(value)
		case name == "first":
			l.First = time.UnixMilli(number(value)).UTC()
		case name == "last":
			l.Last = time.UnixMilli(number(value)).UTC()
		}
	}
	if version == letterVersion {
		l.Grant = grantOf(&l)
	}
	return l
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// grantOf reads the grant from the letter's entry. It returns nil for a whole entry, and if the entry was deleted before.
func grantOf(l *model.Letter) *hongbao.Grant {
	if l.Seq == 0 {
		return nil
	}
	e, err := stream.ParseEntry(l.Shard, l.Entry, l.Fields)
	if err != nil || len(e.Grants) != 1 || e.Grants[0].Seq != l.Seq {
		return nil
	}
	return &e.Grants[0]
}

// Resolved is a letter about which a person has decided.
type Resolved struct {
	model.Letter
	// Decision is store.Requeued or store.Dropped.
	Decision, By, Why string
}

// parseResolved reads a resolved letter: first the fields of the decision, then those of the letter.
func parseResolved(sink string, shard int, values []string) Resolved {
	var r Resolved
	id := ""
	for _, f := range []struct {
		name string
		to   *string
	}{{"letter", &id}, {"decision", &r.Decision}, {"by", &r.By}, {"why", &r.Why}, {"resolved", new(string)}} {
		if len(values) < 2 || values[0] != f.name {
			break
		}
		*f.to, values = values[1], values[2:]
	}
	r.Letter = parse(sink, shard, id, values)
	return r
}
