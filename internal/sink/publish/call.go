package publish

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// call is the state of one Handle.
type call struct {
	shard  int
	grants []hongbao.Grant
	errs   []error
	left   []int // grants that are not settled, by seq
	// most bounds the next batch: it is halved when the broker rejects one as too large, and doubled when it accepts
	// one.
	most, limit int
}

func newCall(grants []hongbao.Grant, limit int) *call {
	c := &call{grants: grants, errs: make([]error, len(grants)), left: make([]int, 0, len(grants)), most: limit,
		limit: limit}
	for i := range grants {
		g := &grants[i]
		c.shard = grants[0].Shard
		if err := admit(g, c.shard); err != nil {
			c.errs[i] = hongbao.Errorf(hongbao.ClassPermanent, "grant %s can't be published: %w", g.EventID(), err)
			continue
		}
		c.left = append(c.left, i)
	}
	slices.SortStableFunc(c.left, func(a, b int) int { return cmp.Compare(grants[a].Seq, grants[b].Seq) })
	return c
}

// admit returns an error that says why a grant can't be a message, or could not be found again in the stream.
func admit(g *hongbao.Grant, shard int) error {
	if g.Shard != shard || shard < 0 {
		return fmt.Errorf("it is of shard %d among grants of shard %d", g.Shard, shard)
	}
	if err := cloudevent.CheckGrant(g); err != nil {
		return err
	}
	if y := g.Time.UTC().Year(); y < 1970 || y > 9999 {
		return fmt.Errorf("time %v: want the years 1970 to 9999", g.Time)
	}
	return checkEntryID(g.EntryID)
}

// settle sets the result of every left grant of the events.
func (c *call) settle(events []stream.SeqRange, err error) {
	c.left = slices.DeleteFunc(c.left, func(i int) bool {
		if !covers(events, c.grants[i].Seq) {
			return false
		}
		c.errs[i] = err
		return true
	})
}

// fail sets the error of every left grant.
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

// widen lets the next batch be larger: the broker has accepted one.
func (c *call) widen() { c.most = min(2*c.most, c.limit) }

func covers(events []stream.SeqRange, seq int64) bool {
	return slices.ContainsFunc(events, func(r stream.SeqRange) bool { return r.Has(seq) })
}
