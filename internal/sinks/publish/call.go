package publish

import (
	"cmp"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// call is the state of one call of Handle.
type call struct {
	in     stream.Opening
	grants []hongbao.Grant
	errs   []error
	left   []int // indexes of the grants without a result, in order of seq
	// most is the maximum number of grants in the next batch. It is halved when the broker rejects a batch as too
	// large, and doubled when the broker accepts one.
	most, limit int
}

func newCall(b *hongbao.Batch, limit int) *call {
	grants := b.Grants
	c := &call{in: stream.Opening{Shard: b.Shard, Epoch: b.Epoch}, grants: grants, errs: make([]error, len(grants)),
		left: make([]int, 0, len(grants)), most: limit, limit: limit}
	for i := range grants {
		g := &grants[i]
		if err := admit(g); err != nil {
			c.errs[i] = hongbao.Errorf(hongbao.ClassPermanent, "grant %s can't be published: %w", g.EventID(), err)
			continue
		}
		c.left = append(c.left, i)
	}
	slices.SortStableFunc(c.left, func(a, b int) int { return cmp.Compare(grants[a].Seq, grants[b].Seq) })
	return c
}

// admit returns an error if a grant can't be a message, or if its batch could not be rebuilt from the stream.
func admit(g *hongbao.Grant) error {
	if err := cloudevent.CheckGrant(g); err != nil {
		return err
	}
	if err := cloudevent.CheckTime(g.Time); err != nil {
		return err
	}
	return checkEntryID(g.EntryID)
}

// settle sets the result of those remaining grants that are in events.
func (c *call) settle(events []stream.SeqRange, err error) {
	c.left = slices.DeleteFunc(c.left, func(i int) bool {
		if !covers(events, c.grants[i].Seq) {
			return false
		}
		c.errs[i] = err
		return true
	})
}

// fail sets the error of all remaining grants.
func (c *call) fail(err error) {
	for _, i := range c.left {
		c.errs[i] = err
	}
	c.left = nil
}

func (c *call) result() []error {
	for _, err := range c.errs {
		if err != nil {
			return c.errs
		}
	}
	return nil
}

// widen doubles the size limit of the next batch, after the broker has accepted a batch.
func (c *call) widen() { c.most = min(2*c.most, c.limit) }

func covers(events []stream.SeqRange, seq int64) bool {
	return slices.ContainsFunc(events, func(r stream.SeqRange) bool { return r.Has(seq) })
}
