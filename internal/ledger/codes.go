package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/hongbao-project/hongbao"
)

// codeChunk is how many codes one transaction stores.
const codeChunk = 5_000

// AddCodes stores a code for each packet of a campaign that has none yet, in the order of the packets and chunk by
// chunk. Killed at any point, and called again, by several processes at once too, it goes on where the codes end;
// when every packet has one it changes nothing. draw gives the codes of the n packets after a number; it is called
// once more for the same packets when a code is taken or another process was quicker. progress, if not nil, is told
// how many packets have a code. Errors never tell a code.
func (l *Ledger) AddCodes(
	ctx context.Context, campaign string, draw func(after int64, n int) ([]string, error), progress func(stored int64),
) error {
	known, found, err := l.lookUp(ctx, campaign)
	if err != nil {
		return err
	}
	if !found {
		return hongbao.Errorf(hongbao.ClassPermanent, "store the codes of campaign %.80q: %w", campaign, ErrNoCampaign)
	}
	for stored := int64(0); stored < known.packets; {
		if stored, err = l.addCodes(ctx, campaign, known.packets, draw); err != nil {
			return fmt.Errorf("store the codes of campaign %s after packet %d (do it again to go on): %w", campaign, stored, err)
		}
		if progress != nil {
			progress(stored)
		}
	}
	return nil
}

// addCodes stores the next chunk and gives the number of packets that have a code then.
func (l *Ledger) addCodes(ctx context.Context, campaign string, packets int64, draw func(int64, int) ([]string,
	error)) (stored int64, err error) {
	err = l.write(ctx, func(ctx context.Context, t txn) ([]stmt, error) {
		if stored, err = lastCode(ctx, t, campaign); err != nil || stored >= packets {
			return nil, err
		}
		n := min(packets-stored, codeChunk)
		codes, err := draw(stored, int(n))
		if err == nil && int64(len(codes)) != n {
			err = hongbao.Errorf(hongbao.ClassPermanent, "%d codes were given for %d packets", len(codes), n)
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
		packed, err := l.dialect.pack(campaigns, numbers, codes)
		if err != nil {
			return nil, err
		}
		if err := t.run(ctx, stmt{sql: l.dialect.insertCodes, args: packed}); err != nil {
			return nil, err
		}
		stored += n
		return nil, nil
	})
	if errors.Is(err, errAgain) { // MySQL's own words for it tell the code
		err = hongbao.Outagef(hongbao.ClassTransient, "%w: each time a code was taken already, or another process was "+
			"quicker", errAgain)
	}
	return stored, err
}

// lastCode is the number of the last packet that has a code; those before it have one too.
func lastCode(ctx context.Context, t txn, campaign string) (last int64, err error) {
	err = t.query(ctx, `SELECT COALESCE(MAX(packet), 0) FROM code WHERE campaign = $1`, []any{campaign},
		func(s scan) error { return s(&last) })
	return last, err
}

// CodesStored is how many packets of a campaign have a code.
func (l *Ledger) CodesStored(ctx context.Context, campaign string) (stored int64, err error) {
	err = l.read(ctx, func(ctx context.Context, t txn) error {
		stored, err = lastCode(ctx, t, campaign)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count the codes of campaign %s: %w", campaign, err)
	}
	return stored, nil
}

// Codes gives the codes of up to n packets after a number, in their order.
func (l *Ledger) Codes(ctx context.Context, campaign string, after int64, n int) ([]string, error) {
	var codes []string
	err := l.read(ctx, func(ctx context.Context, t txn) error {
		codes = codes[:0]
		return t.query(ctx, `SELECT packet, code FROM code WHERE campaign = $1 AND packet > $2 ORDER BY packet LIMIT $3`,
			[]any{campaign, after, int64(n)}, func(s scan) error {
				var packet int64
				var code string
				if err := s(&packet, &code); err != nil {
					return err
				}
				if want := after + int64(len(codes)) + 1; packet != want {
					return hongbao.Errorf(hongbao.ClassBroken, "packet %d has no code, packet %d has one: was a row deleted by "+
						"hand?", want, packet)
				}
				codes = append(codes, code)
				return nil
			})
	})
	if err != nil {
		return nil, fmt.Errorf("read the codes of campaign %s after packet %d: %w", campaign, after, err)
	}
	return codes, nil
}

// CodesOf gives the codes of packets of a campaign; "" for one that has none.
func (l *Ledger) CodesOf(ctx context.Context, campaign string, packets []int64) ([]string, error) {
	campaigns := make([]string, len(packets))
	for i := range campaigns {
		campaigns[i] = campaign
	}
	packed, err := l.dialect.pack(campaigns, packets)
	if err != nil {
		return nil, err
	}
	has := make(map[int64]string, len(packets))
	err = l.read(ctx, func(ctx context.Context, t txn) error {
		clear(has)
		return t.query(ctx, l.dialect.readCodes, packed, func(s scan) error {
			var packet int64
			var code string
			err := s(&packet, &code)
			has[packet] = code
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read %d codes of campaign %s: %w", len(packets), campaign, err)
	}
	codes := make([]string, len(packets))
	for i, p := range packets {
		codes[i] = has[p]
	}
	return codes, nil
}
