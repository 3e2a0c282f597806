package model

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

	Line string `json:"-"` // the grant as its entry had it: packet, amount, user, ...
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
	words := strings.Split(l.Line, " ")
	if l.Seq == 0 || len(words) < 2 {
		return hongbao.Grant{}, false
	}
	g := hongbao.Grant{Campaign: l.Campaign(), Shard: l.Shard, Seq: l.Seq, Packet: wholeNumber(words[0]),
		Amount: hongbao.Amount(wholeNumber(words[1]))}
	if len(words) > 2 {
		g.User = words[2]
	}
	return g, true
}

// wholeNumber returns the number in a text; 0 if there is none.
func wholeNumber(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// ParseLetterID splits the ID of a letter: <sink>/<shard>/<ID in the stream of letters>.
func ParseLetterID(id string) (sink string, shard int, stream string, err error) {
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

// LetterFilter selects dead letters; an empty filter selects all.
type LetterFilter struct {
	Sink     string    `json:"sink,omitempty" doc:"Only letters of this sink, or of several sinks separated by commas."`
	Campaign string    `json:"campaign,omitempty" doc:"Only letters of the campaign with this id."`
	Class    string    `json:"class,omitempty" enum:"unknown,transient,permanent,conflict,broken" doc:"Only letters whose last error has this class."`
	User     string    `json:"user,omitempty" doc:"Only letters with a grant to the user with this id."`
	Reason   string    `json:"reason,omitempty" doc:"Only letters whose reason contains this text."`
	From     time.Time `json:"from,omitzero" doc:"Only letters that became dead letters at or after this time."`
	To       time.Time `json:"to,omitzero" doc:"Only letters that became dead letters before this time."`
}

// Some reports whether a field of the filter is set.
func (f *LetterFilter) Some() bool { return *f != LetterFilter{} }

// LetterClasses returns the possible values of Letter.Class.
func LetterClasses() []string {
	return []string{
		hongbao.ClassUnknown.String(), hongbao.ClassTransient.String(), hongbao.ClassPermanent.String(),
		hongbao.ClassConflict.String(), hongbao.ClassBroken.String(),
	}
}

// MaxLetters is the largest number of dead letters on a page.
const MaxLetters = 10_000
