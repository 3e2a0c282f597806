package store

import (
	"context"
	"strconv"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var deadLetterScript = newDrainScript("dead_letter", "bits")

// Letter is a dead letter to write: for a grant, or for a whole entry that can't be read.
type Letter struct {
	Group    string
	Consumer string // the consumer that has the entry
	EntryID  string
	// Grant is nil if the letter is for a whole entry.
	Grant *hongbao.Grant
	// Last reports that no other grant of the entry is unfinished, so the script acks the entry.
	Last     bool
	Class    hongbao.Class
	Reason   string
	Attempts int64
}

// MaxReason is the longest reason that a dead letter keeps, in bytes.
const MaxReason = 2000

// DeadLetter moves a grant or an entry to the dead letters: dead letter, done bit, count and ack in one step. It
// reports whether this call wrote the letter. It writes nothing if the letter exists, or if the entry is no longer
// pending for the consumer.
func (k *Shard) DeadLetter(ctx context.Context, l Letter) (bool, error) {
	keys := []string{k.Keys.Events(), k.Keys.Dead(l.Group)}
	var line, bit, seq = "", "0", "0"
	if l.Grant != nil {
		k.saw(ctx, stream.SeqRange{First: l.Grant.Seq, Last: l.Grant.Seq})
		keys = append(keys, k.Keys.Done(l.Group, l.Grant.Seq/ChunkEvents), k.Keys.Campaign(l.Grant.Campaign))
		bit = strconv.FormatInt(l.Grant.Seq%ChunkEvents, 10)
		seq = strconv.FormatInt(l.Grant.Seq, 10)
		line = GrantLine(l.Grant)
	}
	last := "0"
	if l.Last {
		last = "1"
	}
	reason := l.Reason
	if len(reason) > MaxReason {
		reason = reason[:MaxReason]
	}
	reply, err := k.run(ctx, deadLetterScript, keys, []any{
		l.Group, l.EntryID, last, bit, l.Class.String(), reason, l.Attempts, line, seq, l.Consumer,
	})
	if err != nil {
		return false, err
	}
	return one(deadLetterScript, reply, func(s string) (bool, error) { return s == "written", nil })
}

// GrantLine formats a grant as a line of a stream entry: packet, amount, user, request id, traceparent.
func GrantLine(g *hongbao.Grant) string {
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	return strconv.FormatInt(g.Packet, 10) + " " + strconv.FormatInt(int64(g.Amount), 10) + " " + g.User + " " +
		dash(g.RequestID) + " " + dash(g.Trace)
}
