package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao"
)

var receiptsScript = newDrainScript("receipts", "fields") // it only reads

// Receipts returns the receipts of the grabs' users in a campaign on this shard, for 1 to MaxGrabs grabs. answers[i]
// in the result has the receipts of grabs[i]'s user, the time of Redis and no outcome. If Redis may have lost some
// receipts, all answers have OutcomeFrozen instead. Receipts reuses the memory of the answers that the caller passes.
func (p Place) Receipts(ctx context.Context, grabs []*hongbao.Grab,
	answers []hongbao.Answer) ([]hongbao.Answer, error) {
	args := make([]any, len(grabs), len(grabs)+2) // run appends two arguments
	for i, g := range grabs {
		args[i] = &g.User // a pointer, because a string in an interface allocates
	}
	epoch, err := p.registrationEpoch(ctx) // before the call, because the reply has no epoch
	if err != nil {
		return nil, err
	}
	reply, err := p.run(ctx, receiptsScript, []string{p.Keys.Campaign(p.Campaign), p.Keys.Receipts(p.Campaign)}, args)
	if errors.Is(err, ErrFrozen) {
		return allFrozen(len(grabs), answers), nil
	}
	if err != nil {
		return nil, err
	}
	if len(reply) != 3+len(grabs) {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "script receipts returned %d parts for %d users", len(reply),
			len(grabs))
	}
	if reply[0] == "" || reply[0] == StateFrozen { // lost: the caller has seen the campaign before
		return allFrozen(len(grabs), answers), nil
	}
	from, err := strconv.ParseInt(reply[1], 10, 64)
	if err != nil {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis, field from: %w", p.Campaign, err)
	}
	ms, err := strconv.ParseInt(reply[2], 10, 64)
	if err != nil {
		return nil, hongbao.Errorf(hongbao.ClassBroken, "script receipts returned the time %.20q: %w", reply[2], err)
	}
	now := time.UnixMilli(ms)
	answers = answers[:0]
	for _, text := range reply[3:] {
		a := hongbao.Answer{Time: now}
		if text != "" {
			if a.Receipts, err = ParseReceipts(p.Keys.Index(), from, text); err != nil {
				return nil, err
			}
		}
		answers = append(answers, a)
	}
	return answers, p.answer(ctx, &GrabCall{Grabs: grabs}, answers, epoch)
}
