package store

import (
	"context"
	"strconv"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

var deadLetterScript = newDrainScript("dead_letter")

// Letter is a dead letter to be: a grant, or a whole entry that can't be read.
type Letter struct {
	Group    string
	Consumer string // that has the entry
	EntryID  string
	// Grant is nil for a whole entry.
	Grant *hongbao.Grant
	// Last: nothing else of the entry is left, so it is acked.
	Last     bool
	Class    hongbao.Class
	Reason   string
	Attempts int64
}

// MaxReason bounds the reason that a dead letter keeps, in bytes.
const MaxReason = 2000

// DeadLetter sets a grant or an entry aside: dead letter, done bit and ack in one step. It tells whether the letter was
// written now: a repeat writes none, nor does a consumer that has lost the entry.
func (k *Shard) DeadLetter(ctx context.Context, l Letter) (bool, error) {
	keys := []string{k.Keys.Events(), k.Keys.Dead(l.Group)}
	var line, bit, seq = "", "0", "0"
	if l.Grant != nil {
		k.saw(ctx, stream.SeqRange{First: l.Grant.Seq, Last: l.Grant.Seq})
		keys = append(keys, k.Keys.Done(l.Group, l.Grant.Seq/ChunkEvents))
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

// GrantLine writes a grant as field g of an entry has it: packet, amount, user, request id, traceparent.
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
