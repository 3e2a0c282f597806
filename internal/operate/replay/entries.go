package replay

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// ledgerID returns an entry ID for a grant whose entry is no longer in the stream. Redis accepts the ID, and no entry
// ever had it. A worker that reads this ID from the stream finds nothing, so the publisher reads the topic instead.
func ledgerID(seq int64) string { return "0-" + strconv.FormatInt(seq, 10) }

// twinID returns such an ID for a grant whose seq another grant also has, so that the seq alone does not identify it. It
// has the fingerprint of the grant, in the place of a time in 1970.
func twinID(g *hongbao.Grant) string {
	return strconv.FormatInt(fingerprint(g), 10) + "-" + strconv.FormatInt(g.Seq, 10)
}

// fingerprint returns a number from 1 to 2^32 that distinguishes grants with the same seq.
func fingerprint(g *hongbao.Grant) int64 {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, g.Campaign, "/", g.Packet) // never fails
	return int64(h.Sum32()) + 1
}

// parseMadeID parses the result of ledgerID or twinID. twin is the fingerprint, 0 for ledgerID.
func parseMadeID(id string) (twin, seq int64, ok bool) {
	head, tail, _ := strings.Cut(id, "-")
	twin, err1 := strconv.ParseInt(head, 10, 64)
	seq, err2 := strconv.ParseInt(tail, 10, 64)
	return twin, seq, err1 == nil && err2 == nil && twin <= 1<<32
}

// Entries returns the entries that the publisher needs to build a batch of a replay again. It is safe for concurrent
// use.
type Entries struct {
	Store *store.Store
	// Ledger may be nil. Then grants without an entry are found in the receipts only.
	Ledger Ledger
}

// Entries returns the entries from firstID to lastID, both included, ordered by seq. It leaves out missing entries. For
// the IDs that a replay made with ledgerID or twinID, it returns one entry for each grant.
func (e *Entries) Entries(ctx context.Context, in stream.Opening, firstID, lastID string) ([]stream.Entry, error) {
	shard := in.Shard
	twin, first, made := parseMadeID(firstID)
	_, last, alsoMade := parseMadeID(lastID)
	if !made || !alsoMade {
		return e.Store.Entries(ctx, in, firstID, lastID)
	}
	var out []stream.Entry
	missing := map[int64]bool{} // seqs not yet found
	for seq := first; seq <= last; seq++ {
		missing[seq] = true
	}
	wanted := func(g *hongbao.Grant) bool { return missing[g.Seq] && (twin == 0 || twin == fingerprint(g)) }
	add := func(g hongbao.Grant) error {
		if !wanted(&g) {
			return nil
		}
		delete(missing, g.Seq)
		if g.EntryID = ledgerID(g.Seq); twin != 0 {
			g.EntryID = twinID(&g)
		}
		out = append(out, stream.Entry{
			ID: g.EntryID, Shard: shard, Kind: stream.EntryGrant, Campaign: g.Campaign, Seq: g.Seq, Epoch: g.Epoch,
			Time:   g.Time,
			Grants: []hongbao.Grant{g},
		})
		return nil
	}
	var err error
	if e.Ledger != nil {
		err = e.Ledger.EachGrantBySeq(ctx, shard, stream.SeqRange{First: first, Last: last}, add)
	}
	if err == nil && len(missing) > 0 {
		var granted map[int64]hongbao.Grant
		granted, err = e.Store.Shard(shard).GrantsByReceipts(ctx, wanted)
		for _, g := range granted {
			_ = add(g) // never fails
		}
	}
	if err != nil {
		return nil, fmt.Errorf("build entries %s to %s of shard %d from the ledger and the receipts: %w", firstID, lastID,
			shard, err)
	}
	slices.SortFunc(out, func(a, b stream.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	return out, nil
}
