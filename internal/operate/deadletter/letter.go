package deadletter

import (
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Letter is a dead letter: a grant that its sink could not take, or a whole entry that can't be read.
type Letter struct {
	// ID identifies the letter in the deployment: <sink>/<shard>/<ID in the stream of letters>.
	ID    string `json:"id" doc:"Id of the letter: SINK/SHARD/ENTRY. ENTRY is the letter's id in the stream of letters."`
	Sink  string `json:"sink" doc:"Name of the sink that could not take the grant."`
	Shard int    `json:"shard" doc:"The shard's number."`
	// Entry is the ID of the stream entry that contained the grant; the entry may be trimmed. Fields has the entry's
	// field names and values, alternately. A grant's letter has an entry with this grant only.
	Entry  string   `json:"entry" doc:"Id of the stream entry from which the letter was made. The stream may no longer have this entry."`
	Fields []string `json:"fields" doc:"Names and values of the entry's fields, alternately. Empty if the entry was deleted before the letter was written."`
	Seq    int64    `json:"seq,omitempty" doc:"The grant's seq on the shard. Absent if the letter has a whole entry."`
	// Grant is nil for a whole entry, for a grant whose entry was deleted before the letter was written, and for a letter
	// of another version.
	Grant    *hongbao.Grant `json:"grant,omitempty" doc:"The grant. Absent if the letter has a whole entry, and if the entry was deleted before."`
	Class    string         `json:"class" doc:"Class of the sink's last error: 'unknown', 'transient', 'permanent', 'conflict' or 'broken'."`
	Reason   string         `json:"reason" doc:"Text of the sink's last error."`
	Attempts int64          `json:"attempts" doc:"Number of attempts to deliver the entry."`
	// First is the time when the entry was written. Last is the time when the letter was written.
	First time.Time `json:"first" doc:"Time when the entry was written to the stream."`
	Last  time.Time `json:"last" doc:"Time when the letter was written."`

	stream  string // ID in the stream of letters
	version string
	line    string // the grant as its entry had it: packet, amount, user, ...
}

// letterVersion is the version of the letters that lua/dead_letter.lua writes.
const letterVersion = "2"

// parse reads a letter. It leaves invalid parts empty, so that a person can still look at the letter and drop it.
func parse(sink string, shard int, stream string, values []string) Letter {
	l := Letter{ID: sink + "/" + strconv.Itoa(shard) + "/" + stream, Sink: sink, Shard: shard, Fields: []string{},
		stream: stream}
	for i := 0; i+1 < len(values); i += 2 {
		name, value := values[i], values[i+1]
		field, ofEntry := strings.CutPrefix(name, "entry.")
		switch {
		case ofEntry:
			l.Fields = append(l.Fields, field, value)
		case name == "v":
			l.version = value
		case name == "entry_json":
			l.Fields = append(l.Fields, name, value)
		case name == "entry":
			l.Entry = value
		case name == "seq":
			l.Seq = number(value)
		case name == "grant":
			l.line = value
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
	l.Grant = l.grant()
	return l
}

func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

func (l *Letter) grant() *hongbao.Grant {
	if l.Seq == 0 || l.version != letterVersion {
		return nil
	}
	e, err := stream.ParseEntry(l.Shard, l.Entry, l.Fields)
	if err != nil || len(e.Grants) != 1 || e.Grants[0].Seq != l.Seq {
		return nil
	}
	return &e.Grants[0]
}

// Campaign returns the campaign in the letter's entry, even if the entry can't be read. It is empty if the entry had
// been deleted before the letter was written.
func (l *Letter) Campaign() string {
	return stream.CampaignOf(l.Fields)
}

// Facts returns the fields of the letter's grant that an audit compares. If the entry had been deleted before the
// letter was written, only the campaign is missing. An aged record of a dropped letter has no user: see
// lua/expire_letters.lua. Facts returns false if the letter is a whole entry.
func (l *Letter) Facts() (hongbao.Grant, bool) {
	words := strings.Split(l.line, " ")
	if l.Seq == 0 || len(words) < 2 {
		return hongbao.Grant{}, false
	}
	g := hongbao.Grant{Campaign: l.Campaign(), Shard: l.Shard, Seq: l.Seq, Packet: number(words[0]),
		Amount: hongbao.Amount(number(words[1]))}
	if len(words) > 2 {
		g.User = words[2]
	}
	return g, true
}

// Resolved is a letter about which a person has decided.
type Resolved struct {
	Letter
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

// ParseID splits the ID of a letter: <sink>/<shard>/<ID in the stream of letters>.
func ParseID(id string) (sink string, shard int, stream string, err error) {
	f := strings.Split(id, "/")
	if len(f) == 3 {
		shard, err = strconv.Atoi(f[1])
	}
	if len(f) != 3 || err != nil || shard < 0 || hongbao.CheckCampaignID(f[0]) != nil || !isStreamID(f[2]) {
		return "", 0, "", hongbao.Errorf(hongbao.ClassPermanent,
			"letter %.120q: want <sink>/<shard>/<id> as `hongbao dead list` prints it", id)
	}
	return f[0], shard, f[2], nil
}

func isStreamID(id string) bool {
	ms, n, ok := strings.Cut(id, "-")
	for _, part := range []string{ms, n} {
		if _, err := strconv.ParseUint(part, 10, 64); err != nil {
			return false
		}
	}
	return ok
}
