package store

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao"
)

const (
	// A process remembers a grant at least for rememberFor after it first reported it to a user, and until the grant is
	// settled. rememberMost is the maximum.
	rememberFor, rememberMost = 10 * time.Second, time.Minute
	// maxRemembered limits the size in bytes of the grants that a process remembers for a deployment.
	maxRemembered = 64 << 20
)

// reported has grants with consecutive seqs, in the format of a stream entry.
type reported struct {
	entry       string
	epoch       int64
	first, last int64 // seqs
	at          time.Time
}

// seqOfEpoch identifies a grant of a shard. After a loss, its seq may belong to a different grant in the next epoch.
type seqOfEpoch struct{ epoch, seq int64 }

// remember stores the receipts of answers. New grants with consecutive seqs become one reported; earlier grants
// become one each, unless they are in repeated.
func (w *witness) remember(p Place, call *GrabCall, answers []hongbao.Answer, epoch int64) {
	now := time.Now()
	b, first, last := w.text[:0], int64(0), int64(0)
	flush := func() {
		if len(b) > 0 {
			w.add(p.store, reported{entry: string(b), epoch: epoch, first: first, last: last, at: now})
			b = b[:0]
		}
	}
	for i := range answers {
		a := &answers[i]
		for j := range a.Receipts {
			r := &a.Receipts[j]
			if r.Shard != p.Index() || a.Time.Sub(r.Time) > rememberMost {
				continue // too old: no process remembers grants longer
			}
			fresh := a.Outcome == hongbao.OutcomeGranted && r.Time.Equal(a.Time)
			if !fresh && !w.repeats(seqOfEpoch{epoch, r.Seq}) {
				continue
			}
			if !fresh || last == 0 || r.Seq != last+1 {
				flush()
				first = r.Seq
				b = append(b, "grant "...)
				b = append(append(b, p.Campaign...), ' ')
				b = append(strconv.AppendInt(b, r.Seq, 10), ' ')
				b = append(strconv.AppendInt(b, epoch, 10), ' ')
				b = append(strconv.AppendInt(b, r.Time.UnixMilli(), 10), ' ')
				b = append(b, cmp.Or(call.Currency, "-")...)
			}
			g := call.Grabs[i]
			b = strconv.AppendInt(append(b, '\n'), r.Packet, 10)
			b = append(strconv.AppendInt(append(b, ' '), int64(r.Amount), 10), ' ')
			b = append(append(b, g.User...), ' ')
			b = append(append(b, cmp.Or(r.RequestID, "-")...), ' ')
			if last = r.Seq; fresh {
				b = append(b, cmp.Or(g.Trace, "-")...)
			} else {
				b = append(b, '-')
				flush()
				last = 0
			}
		}
	}
	flush()
	w.text = b
}

// rememberAgain stores a grant that users know from an earlier epoch, under its present seq and epoch. It does nothing if
// the process remembers it under these already.
func (w *witness) rememberAgain(s *Store, g *hongbao.Grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.repeats(seqOfEpoch{g.Epoch, g.Seq}) {
		return
	}
	entry := fmt.Sprintf("grant %s %d %d %d %s\n%s", g.Campaign, g.Seq, g.Epoch, g.Time.UnixMilli(),
		cmp.Or(g.Currency, "-"), GrantLine(g))
	w.add(s, reported{entry: entry, epoch: g.Epoch, first: g.Seq, last: g.Seq, at: time.Now()})
}

// repeats adds a grant to repeated. It returns false if the grant is there already.
func (w *witness) repeats(g seqOfEpoch) bool {
	if _, known := w.repeated[g]; known {
		return false
	}
	if w.repeated == nil {
		w.repeated = map[seqOfEpoch]struct{}{}
	}
	w.repeated[g] = struct{}{}
	return true
}

func (w *witness) add(s *Store, t reported) {
	w.reported = append(w.reported, t)
	total := s.remembered.Add(int64(len(t.entry)))
	for total > maxRemembered && len(w.reported) > 0 { // can only drop grants of this shard
		total = w.drop(s)
	}
}

// drop forgets the oldest grants although they may not be settled. It returns how many bytes the process still
// remembers.
func (w *witness) drop(s *Store) int64 {
	w.dropped = max(w.dropped, w.reported[0].last)
	s.forgotten.Add(w.reported[0].last - w.reported[0].first + 1)
	return w.pass(s)
}

// pass removes the oldest grants from the list.
func (w *witness) pass(s *Store) int64 {
	total := s.remembered.Add(-int64(len(w.reported[0].entry)))
	delete(w.repeated, seqOfEpoch{w.reported[0].epoch, w.reported[0].first})
	w.reported[0] = reported{}
	w.reported = w.reported[1:]
	return total
}

// forget removes grants that are settled and old. A grant of an earlier epoch does not count as settled, because its
// seq may now belong to a different grant.
func (w *witness) forget(s *Store, epoch, settled int64, now time.Time) {
	for len(w.reported) > 0 {
		t := &w.reported[0]
		switch age := now.Sub(t.at); {
		case age > rememberFor && t.last <= settled && t.epoch == epoch:
			w.pass(s)
		case age > rememberMost:
			w.drop(s)
		default:
			return
		}
	}
}

// Remembered returns how many bytes of grants this process remembers, and how many grants it forgot before they were
// settled.
func (s *Store) Remembered() (bytes, forgotten int64) { return s.remembered.Load(), s.forgotten.Load() }
