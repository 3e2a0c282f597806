package publish

import (
	"context"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// addTerms sets the currency and the code of each grant in the call. A grant that can't be a message gets an error. If
// Campaigns fails, addTerms returns an error for all grants, and nothing is sent.
func (p *Publisher) addTerms(ctx context.Context, c *call) error {
	grants, without, err := p.withTerms(ctx, c.grants)
	if err != nil {
		return err
	}
	c.grants = grants
	for i, err := range without {
		c.settle([]stream.SeqRange{{First: grants[i].Seq, Last: grants[i].Seq}}, err)
	}
	return nil
}

// withTerms returns a copy of the grants with currency and code, see cloudevent.Complete.
func (p *Publisher) withTerms(ctx context.Context, grants []hongbao.Grant) (out []hongbao.Grant, without map[int]error,
	err error) {
	if p.cfg.Campaigns == nil {
		return grants, nil, nil
	}
	return cloudevent.Complete(ctx, p.cfg.Campaigns, grants)
}
