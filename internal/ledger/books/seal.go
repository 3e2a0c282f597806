package books

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// ErrNotSealable says that a campaign can't be sealed yet.
var ErrNotSealable = errors.New("the campaign can't be sealed")

// seal has the sums that replace a sealed campaign's grants in audits: their number and amount, the amount paid to each
// group of users, and the seqs by shard.
type seal struct {
	grants, amount  int64
	debits, debited int64
	groups          map[int64]int64
	seqs            map[int][]stream.SeqRange
}

// Seal stores the sums over the grants of a refunded campaign, and adds the grants to the bases of their accounts. So
// CheckConservation and the audit need not read the grants and these accounts again. The caller must have audited the
// campaign. A repeated call continues where a killed one ended. Before the refund the error is ErrNotSealable, of
// ClassPermanent. If the campaign's counters differ from its grants, it is of ClassBroken.
func (b Books) Seal(ctx context.Context, campaign string) error {
	c, found, err := b.Totals(ctx, campaign)
	switch {
	case err != nil:
		return err
	case !found:
		return hongbao.Errorf(hongbao.ClassPermanent, "seal campaign %.80q: %w; check the id", campaign, tables.ErrNoCampaign)
	case c.Sealed:
		return b.addBases(ctx, &c, baseRows)
	case !c.Closed:
		return hongbao.Errorf(hongbao.ClassPermanent, "seal campaign %s: %w: it is not refunded", campaign, ErrNotSealable)
	}
	s := &seal{groups: make(map[int64]int64)}
	err = b.tables.ReadPages(ctx, func(ctx context.Context, t db.Txn) error { return s.read(ctx, t, &c) })
	if err == nil && (s.grants != c.Grants || s.amount != int64(c.Granted) || s.debits != s.amount ||
		s.debited != s.grants) {
		err = hongbao.Errorf(hongbao.ClassBroken, "the ledger does not agree with itself: it has counted %d grants with "+
			"amount %d, there are %d with %d, and debits for %d with %d: run `hongbao audit`", c.Grants, c.Granted, s.grants,
			s.amount, s.debited, s.debits)
	}
	if err == nil {
		err = s.store(ctx, b.tables, campaign)
	}
	if err != nil {
		return fmt.Errorf("seal campaign %s: %w", campaign, err)
	}
	return b.addBases(ctx, &c, baseRows)
}

// sealPart is the most bytes of seqs in one statement. A database bounds a statement (max_allowed_packet), and a driver
// may write two bytes for one.
const sealPart = 1 << 20

// store stores the seal; it changes nothing if the campaign has one. Each part of the seqs is a statement of its own.
func (s *seal) store(ctx context.Context, on *tables.DB, campaign string) error {
	seqs := s.packSeqs()
	first := seqs[:min(len(seqs), sealPart)]
	return on.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		_, found, err := tables.Query[int64]{SQL: `SELECT 1 FROM seal WHERE campaign = $1`, Args: []any{campaign},
			Row: tables.Number}.First(ctx, t)
		if err != nil || found {
			return nil, err
		}
		// A person who removes seals may have left the parts.
		err = t.Run(ctx, db.Stmt{SQL: `DELETE FROM seal_seqs WHERE campaign = $1`, Args: []any{campaign}},
			db.Stmt{SQL: on.Dialect.InsertSeal,
				Args: []any{campaign, s.grants, s.amount, s.packGroups(), first, time.Now().UnixMilli()}})
		part := int64(0)
		for rest := range slices.Chunk(seqs[len(first):], sealPart) {
			if part++; err == nil { // if another process has stored the seal meanwhile, this fails with db.ErrAgain
				err = t.Run(ctx, db.Stmt{SQL: `INSERT INTO seal_seqs (campaign, part, seqs) VALUES ($1, $2, $3)`,
					Args: []any{campaign, part, rest}})
			}
		}
		return nil, err
	})
}

// read adds up the campaign's grants. It collects the seqs as bits, because grants are read in the order of their
// packets, not of their seqs.
func (s *seal) read(ctx context.Context, t db.Txn, c *Totals) (err error) {
	bits := make(map[int]map[int64]uint64)
	err = tables.EachPaid(ctx, t, c.Campaign, 0, func(g *tables.PaidGrant) error {
		s.grants, s.amount = s.grants+1, s.amount+int64(g.Amount)
		if g.Amount > 0 {
			s.groups[userGroup(tables.UserAccount(g.User, c.Currency))] += int64(g.Amount)
		}
		if bits[g.Shard] == nil {
			bits[g.Shard] = make(map[int64]uint64)
		}
		bits[g.Shard][g.Seq/64] |= 1 << (g.Seq % 64)
		return nil
	})
	if err != nil {
		return err
	}
	s.seqs = make(map[int][]stream.SeqRange, len(bits))
	for shard, words := range bits {
		s.seqs[shard] = ranges(words)
	}
	s.debits, s.debited, err = sumDebits(ctx, t, c.Campaign)
	return err
}

// ranges returns the numbers whose bits are set, as sorted ranges.
func ranges(words map[int64]uint64) (list []stream.SeqRange) {
	for _, w := range slices.Sorted(maps.Keys(words)) {
		for bit := range int64(64) {
			if words[w]&(1<<bit) == 0 {
				continue
			}
			seq := w*64 + bit
			if n := len(list); n > 0 && list[n-1].Last == seq-1 {
				list[n-1].Last = seq
			} else {
				list = append(list, stream.SeqRange{First: seq, Last: seq})
			}
		}
	}
	return list
}

// packGroups encodes (group, amount) pairs. packSeqs encodes for each shard its number, the number of its ranges, and
// each range's first and last seq. All numbers are varints. The pairs and ranges are sorted, and a group or seq is
// encoded as the difference from the previous one.
func (s *seal) packGroups() []byte {
	b, last := []byte{}, int64(0)
	for _, g := range slices.Sorted(maps.Keys(s.groups)) {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(g-last)), uint64(s.groups[g]))
		last = g
	}
	return b
}

func (s *seal) packSeqs() []byte {
	b := []byte{}
	for _, shard := range slices.Sorted(maps.Keys(s.seqs)) {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(shard)), uint64(len(s.seqs[shard])))
		last := int64(0)
		for _, r := range s.seqs[shard] {
			b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(r.First-last)), uint64(r.Last-r.First))
			last = r.Last
		}
	}
	return b
}

// numbers reads varints. bad is set if one is damaged or missing.
type numbers struct {
	rest []byte
	bad  bool
}

func (n *numbers) next() int64 {
	v, size := binary.Uvarint(n.rest)
	if size <= 0 || v > 1<<62 {
		n.rest, n.bad = nil, true
		return 0
	}
	n.rest = n.rest[size:]
	return int64(v)
}

func (n *numbers) err(campaign string) error {
	if !n.bad {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassBroken, "the seal of campaign %s can't be read: the database was changed by "+
		"hand; remove all seals, so that the grants are read again: see docs/audit.md, \"To remove the seals\"", campaign)
}

// eachGroup calls fn for each group of users, with the amount that a sealed campaign paid to it.
func eachGroup(campaign string, packed []byte, fn func(group, amount int64)) error {
	n, group := numbers{rest: packed}, int64(0)
	for len(n.rest) > 0 {
		group += n.next()
		if amount := n.next(); !n.bad && group < userGroups {
			fn(group, amount)
		}
	}
	return n.err(campaign)
}

// SealedSeqs returns the seqs of the grants of a sealed campaign, by shard; none if it is not sealed.
func (b Books) SealedSeqs(ctx context.Context, campaign string) (seqs map[int][]stream.SeqRange, err error) {
	var packed []byte
	err = b.tables.Read(ctx, func(ctx context.Context, t db.Txn) error {
		packed = nil
		more := func(s db.Scan) error {
			var part []byte
			err := s(&part)
			packed = append(packed, part...)
			return err
		}
		err := t.Query(ctx, `SELECT seqs FROM seal WHERE campaign = $1`, []any{campaign}, more)
		if err != nil || len(packed) == 0 {
			return err
		}
		return t.Query(ctx, `SELECT seqs FROM seal_seqs WHERE campaign = $1 ORDER BY part`, []any{campaign}, more)
	})
	n := numbers{rest: packed}
	seqs = make(map[int][]stream.SeqRange)
	for len(n.rest) > 0 {
		shard, last := int(n.next()), int64(0)
		for range n.next() {
			first := last + n.next()
			if last = first + n.next(); n.bad {
				break
			}
			seqs[shard] = append(seqs[shard], stream.SeqRange{First: first, Last: last})
		}
	}
	if err = errors.Join(err, n.err(campaign)); err != nil {
		return nil, fmt.Errorf("read the seal of campaign %s: %w", campaign, err)
	}
	return seqs, nil
}
