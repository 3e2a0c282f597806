package store

import (
	"context"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
)

var trimScript = newDrainScript("trim")

// Trim has the arguments of trim.lua.
type Trim struct {
	Retention time.Duration
	MaxEvents int64
	// Limit is the most entries that one call deletes from the front of the stream.
	Limit int
	// LookBehind is how many entries after an unfinished entry the call examines, to delete finished ones. Behind is
	// the id at which the previous call stopped, or "" for the front of the stream.
	LookBehind int
	Behind     string
	// Groups are the declared groups. They and Others must exist: while one is missing, nothing is deleted.
	Groups, Others []string
	// Epoch is the shard's epoch in which Behind, Full and Never were computed. If the shard has a different epoch
	// now, they are ignored.
	Epoch int64
	// Full is, by group, the first chunk of done bits that is not known to be full. Chunks before it are not counted
	// again.
	Full map[string]int64
	// Never is, by group, how many events from that chunk on will never be delivered: lost ones, and those that it does
	// not owe. They count as finished.
	Never map[string]int64
	// MayLag are declared groups that Trimmed.Finished leaves out, so producers do not answer busy because of them.
	MayLag []string
}

// Trimmed is the state of a shard after a trim.
type Trimmed struct {
	// Seq is the shard's last event. Finished is how many events the slowest declared group has finished, of those that
	// are not in Trim.MayLag.
	Seq, Finished int64
	Epoch         int64
	DoneFloor     int64
	// FirstKept is the first event in the stream, or 0 if the stream is empty.
	FirstKept int64
	Deleted   int
	// Behind is the id at which the call stopped to examine entries, or "" if it reached the end. The next call
	// passes it as Trim.Behind.
	Behind  string
	Missing []string
	Groups  []GroupLag
}

// GroupLag is how far a consumer group is behind.
type GroupLag struct {
	Name string
	// Finished is the event up to which the group has finished all events. Delivered is the event up to which all
	// events were delivered to its workers.
	Finished, Delivered int64
	// Age is how long ago the group's oldest unfinished entry was written; 0 if there is none.
	Age time.Duration
	// Lost is how many events will never be delivered to the group. They are neither done, nor in the stream, nor
	// pending.
	Lost int64

	// ChunkDone has the number of done events in each chunk, from chunk FirstChunk on. Both are set for declared
	// groups only.
	FirstChunk int64
	ChunkDone  []int64
}

// TrimEvents deletes entries that every group has finished and that are older than the retention or exceed MaxEvents.
func (k *Shard) TrimEvents(ctx context.Context, t Trim) (Trimmed, error) {
	head, err := k.Head(ctx)
	if err != nil {
		return Trimmed{}, err
	}
	if head.Epoch != t.Epoch {
		t.Behind, t.Full, t.Never = "", nil, nil
	}
	keys := []string{k.Keys.Events(), k.Keys.Meta()}
	args := []any{t.Retention.Milliseconds(), t.MaxEvents, t.Limit, max(t.LookBehind, 1), t.Behind, ChunkEvents, len(t.Groups)}
	first := map[string]int64{}
	for _, g := range t.Groups {
		first[g] = max(t.Full[g], head.DoneFloor/ChunkEvents)
		before := len(keys)
		for chunk := first[g]; chunk <= head.Seq/ChunkEvents; chunk++ {
			keys = append(keys, k.Keys.Done(g, chunk))
		}
		never := t.Never[g]
		if slices.Contains(t.MayLag, g) {
			never = int64(hongbao.MaxAmount) // more than any seq: the group counts as if it had finished all
		}
		args = append(args, g, first[g]*ChunkEvents, len(keys)-before, never)
	}
	for _, g := range t.Others {
		args = append(args, g)
	}
	reply, err := k.run(ctx, trimScript, keys, args)
	if err != nil {
		return Trimmed{}, err
	}
	return readTrimmed(reply, head, t.Groups, first)
}

func readTrimmed(reply []string, head Head, declared []string, first map[string]int64) (Trimmed, error) {
	r := replyReader{rest: reply}
	out := Trimmed{Epoch: head.Epoch, DoneFloor: head.DoneFloor, Seq: r.int64(), Finished: r.int64(), FirstKept: r.int64(),
		Deleted: r.int(), Behind: r.string()}
	out.Missing = r.strings(r.int())
	counts := make([]int64, 0, len(reply))
	for range r.int() {
		counts = append(counts, r.int64())
	}
	chunks := map[string][]int64{}
	for _, g := range declared {
		n := min(int(max(0, head.Seq/ChunkEvents-first[g]+1)), len(counts))
		chunks[g], counts = counts[:n], counts[n:]
	}
	for r.err == nil && len(r.rest) > 0 {
		g := GroupLag{Name: r.string(), Finished: r.int64(), Delivered: r.int64()}
		g.Age = time.Duration(r.int64()) * time.Millisecond
		g.FirstChunk, g.ChunkDone = first[g.Name], chunks[g.Name]
		out.Groups = append(out.Groups, g)
	}
	return out, r.done(trimScript)
}
