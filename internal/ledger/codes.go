package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// codeChunk is how many codes one transaction stores.
const codeChunk = 5_000

// AddCodes stores a code for each packet of a campaign that has none yet, in the order of the packets, one transaction
// per chunk. It may be killed at any point, repeated, and called by several processes at once: it continues after the
// last packet that has a code. draw returns the codes of packets after+1 to after+n. AddCodes calls draw again for the
// same packets if a code is taken or another process was faster. progress, if not nil, gets the number of packets that
// have a code. Errors never contain a code.
func (l *Ledger) AddCodes(
	ctx context.Context, campaign string, draw func(after int64, n int) ([]string, error), progress func(stored int64),
) error {
	known, found, err := l.lookUp(ctx, campaign, 1)
	if err != nil {
		return err
	}
	if !found {
		return hongbao.Errorf(hongbao.ClassPermanent, "store the codes of campaign %.80q: %w", campaign, ErrNoCampaign)
	}
	for stored := int64(0); stored < known.packets; {
		if stored, err = l.addCodes(ctx, campaign, known.packets, draw); err != nil {
			return fmt.Errorf("store the codes of campaign %s after packet %d (run it again to continue): %w", campaign,
				stored, err)
		}
		if progress != nil {
			progress(stored)
		}
	}
	return nil
}

// addCodes stores the next chunk and returns the number of packets that then have a code.
func (l *Ledger) addCodes(ctx context.Context, campaign string, packets int64, draw func(int64, int) ([]string,
	error)) (stored int64, err error) {
	err = l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		if stored, err = lastCode(ctx, t, campaign); err != nil || stored >= packets {
			return nil, err
		}
		n := min(packets-stored, codeChunk)
		codes, err := draw(stored, int(n))
		if err == nil && int64(len(codes)) != n {
			err = hongbao.Errorf(hongbao.ClassPermanent, "got %d codes for %d packets", len(codes), n)
		}
		if err != nil {
			return nil, err
		}
		campaigns, numbers := make([]string, n), make([]int64, n)
		for i, code := range codes {
			campaigns[i], numbers[i] = campaign, stored+int64(i)+1
			if err := hongbao.CheckCode(code); err != nil {
				return nil, hongbao.Errorf(hongbao.ClassPermanent, "the code of packet %d: %w", numbers[i], err)
			}
		}
		insert := db.Stmt{SQL: l.tables.Dialect.InsertCodes, Args: []any{db.Table{campaigns, numbers, codes}}}
		if err := t.Run(ctx, insert); err != nil {
			return nil, err
		}
		stored += n
		return nil, nil
	})
	if errors.Is(err, db.ErrAgain) { // MySQL's own error text contains the code
		err = hongbao.Outagef(hongbao.ClassTransient, "%w: at each try a code was already taken, or another process was "+
			"faster", db.ErrAgain)
	}
	return stored, err
}

// lastCode returns the number of the last packet that has a code. All packets before it have codes, too.
func lastCode(ctx context.Context, t db.Txn, campaign string) (last int64, err error) {
	last, _, err = tables.Query[int64]{SQL: `SELECT COALESCE(MAX(packet), 0) FROM code WHERE campaign = $1`,
		Args: []any{campaign}, Row: tables.Number}.First(ctx, t)
	return last, err
}

// CodesStored returns how many packets of a campaign have a code.
func (l *Ledger) CodesStored(ctx context.Context, campaign string) (int64, error) {
	what := "count the codes of campaign " + campaign
	return tables.Snapshot(ctx, l.tables, what, func(ctx context.Context, t db.Txn) (int64, error) {
		return lastCode(ctx, t, campaign)
	})
}

type packetCode struct {
	packet int64
	code   string
}

func scanCode(s db.Scan) (c packetCode, err error) {
	err = s(&c.packet, &c.code)
	return c, err
}

// Codes returns the codes of up to n packets, beginning with packet after+1.
func (l *Ledger) Codes(ctx context.Context, campaign string, after int64, n int) ([]string, error) {
	what := fmt.Sprintf("read the codes of campaign %s after packet %d", campaign, after)
	has, err := tables.Ask(what,
		`SELECT packet, code FROM code WHERE campaign = $1 AND packet > $2 ORDER BY packet LIMIT $3`,
		[]any{campaign, after, int64(n)}, scanCode).All(ctx, l.tables)
	codes := make([]string, len(has))
	for i, c := range has {
		if want := after + int64(i) + 1; c.packet != want {
			return nil, hongbao.Errorf(hongbao.ClassBroken, "%s: packet %d has no code, packet %d has one: was a row "+
				"deleted by hand?", what, want, c.packet)
		}
		codes[i] = c.code
	}
	return codes, err
}

// CodesOf returns the codes of packets of a campaign; "" for a packet without a code.
func (l *Ledger) CodesOf(ctx context.Context, campaign string, packets []int64) ([]string, error) {
	campaigns := make([]string, len(packets))
	for i := range campaigns {
		campaigns[i] = campaign
	}
	list, err := tables.Ask(fmt.Sprintf("read %d codes of campaign %s", len(packets), campaign),
		l.tables.Dialect.ReadCodes, []any{db.Table{campaigns, packets}}, scanCode).All(ctx, l.tables)
	if err != nil {
		return nil, err
	}
	has := make(map[int64]string, len(list))
	for _, c := range list {
		has[c.packet] = c.code
	}
	codes := make([]string, len(packets))
	for i, p := range packets {
		codes[i] = has[p]
	}
	return codes, nil
}
