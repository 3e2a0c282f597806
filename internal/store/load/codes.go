package load

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/store"
)

// loadCodes stores each packet's code on the packet's place. In an interrupted load it continues after the last
// stored code. If the campaign is already loaded and some codes are missing, loadCodes stores all codes again,
// because it does not know which ones are missing.
func (l *load) loadCodes(ctx context.Context) error {
	if l.c.Codes == nil {
		return nil
	}
	if l.cfg.Codes == nil {
		return hongbao.Errorf(hongbao.ClassPermanent,
			"load campaign %s: its packets have codes, but Config.Codes is not set", l.c.ID)
	}
	after, err := l.coded(ctx)
	for err == nil && after < l.c.Packets {
		l.progress(after)
		var codes []string
		if codes, err = l.codesAfter(ctx, after); err != nil {
			return err
		}
		for i := 0; err == nil && i < min(len(codes), len(l.places)); i++ {
			p := l.places[(after+int64(i))%int64(len(l.places))]
			_, err = l.putCodes(ctx, p, after+int64(i)+1, every(codes[i:], len(l.places)))
		}
		if after += int64(len(codes)); err == nil && after >= l.c.Packets {
			return l.checkCodes(ctx)
		}
	}
	return err
}

// coded returns the highest number up to which all packets have their codes in Redis.
func (l *load) coded(ctx context.Context) (int64, error) {
	after, n := l.c.Packets, int64(len(l.places))
	for _, p := range l.places {
		has, err := l.putCodes(ctx, p, 1, nil)
		switch {
		case err != nil:
			return 0, err
		case has == int64(len(p.amounts)):
		case p.at.State != store.StateLoading:
			return 0, nil
		default:
			after = min(after, int64(p.number)+has*n)
		}
	}
	return after, nil
}

// codesAfter reads the codes that follow packet number after from the ledger. It returns at least one, or an error.
func (l *load) codesAfter(ctx context.Context, after int64) ([]string, error) {
	codes, err := l.cfg.Codes(ctx, l.c.ID, after, l.cfg.Chunk*len(l.places))
	if err == nil && len(codes) == 0 {
		err = hongbao.Errorf(hongbao.ClassPermanent,
			"packet %d has no code in the ledger; `hongbao campaign create` with the same specification continues there", after+1)
	}
	if err != nil {
		return nil, fmt.Errorf("load the codes of campaign %s: %w", l.c.ID, err)
	}
	return codes, nil
}

// every returns codes 0, n, 2n, ...
func every(codes []string, n int) []string {
	if n == 1 {
		return codes
	}
	out := make([]string, 0, len(codes)/n+1)
	for i := 0; i < len(codes); i += n {
		out = append(out, codes[i])
	}
	return out
}

// putCodes stores codes on one place, and returns how many codes the place has. first is the packet number of the
// first code.
func (l *load) putCodes(ctx context.Context, p *place, first int64, codes []string) (int64, error) {
	chunk := &store.CodesChunk{Campaign: l.c.ID, Hash: l.hash, First: first, Step: int64(len(l.places)), Codes: codes}
	var has store.LoadState
	err := l.retry(ctx, func() (err error) {
		has, err = p.PutCodes(ctx, chunk)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("load the codes of campaign %s (run it again to continue): %w", l.c.ID, err)
	}
	if has.Hash != l.hash {
		return 0, hongbao.Errorf(hongbao.ClassConflict,
			"load the codes of campaign %s: it was taken out of Redis or replaced meanwhile", l.c.ID)
	}
	return has.Loaded, nil
}

// checkCodes returns an error if a place has more or fewer codes than packets.
func (l *load) checkCodes(ctx context.Context) error {
	for _, p := range l.places {
		has, err := l.putCodes(ctx, p, 1, nil)
		if err != nil {
			return err
		}
		if has != int64(len(p.amounts)) {
			return hongbao.Errorf(hongbao.ClassBroken, "load the codes of campaign %s: %s has %d, the place %d packets; "+
				"something else writes there", l.c.ID, p.Keys.Codes(l.c.ID), has, len(p.amounts))
		}
	}
	return nil
}
