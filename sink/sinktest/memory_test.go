package sinktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Errors of the target.
var (
	errDown    = errors.New("the target is down")
	errLost    = errors.New("the connection broke: it is unknown whether the request was done")
	errRefused = errors.New("the target never accepts this grant")
	errOther   = errors.New("the target has another grant under the id")
	errDoubt   = errors.New("it may have been requested before; a person decides")
)

// target is a target in memory.
type target struct {
	mu      sync.Mutex
	booked  map[string]hongbao.Grant // by id
	applied map[string]int           // by unit
	put     map[string]bool          // by unit: put aside
	refused map[string]bool          // by unit
	claims  map[string]bool          // by id
	isDown  bool
	lost    int
	after   bool
	over    atomic.Bool // the test has ended
}

func newTarget() *target {
	return &target{booked: map[string]hongbao.Grant{}, applied: map[string]int{}, put: map[string]bool{},
		refused: map[string]bool{}, claims: map[string]bool{}, lost: -1}
}

// unit is what an effect counts for.
func unit(g *hongbao.Grant) string { return fmt.Sprintf("%s/%d/%s", g.Campaign, g.Packet, g.User) }

// request runs do at the target.
func (t *target) request(ctx context.Context, do func() error) error {
	timer := time.NewTimer(20 * time.Microsecond) // of the network
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	breaks := t.lost == 0
	t.lost--
	switch {
	case t.isDown:
		return errDown
	case breaks && !t.after:
		return errLost
	}
	err := do()
	if breaks {
		return errLost
	}
	return err
}

// book applies a grant under an id, unless the id is known.
func (t *target) book(id string, g hongbao.Grant) error {
	has, known := t.booked[id]
	switch {
	case t.refused[unit(&g)]:
		return errRefused
	case known && has.User != g.User:
		return errOther
	case !known:
		t.booked[id] = g
		t.applied[unit(&g)]++
	}
	return nil
}

// subject returns the subject of a target, whose sinks are those of open.
func (t *target) subject(open func(*target) hongbao.Handler) Subject {
	return Subject{
		Open: func(testing.TB) hongbao.Handler { return open(t) },
		Effects: func(_ testing.TB, grants []hongbao.Grant) []int {
			t.mu.Lock()
			defer t.mu.Unlock()
			counts := make([]int, len(grants))
			for i := range grants {
				counts[i] = t.applied[unit(&grants[i])]
			}
			return counts
		},
		Poison: func(_ testing.TB, g hongbao.Grant) hongbao.Grant {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.refused[unit(&g)] = true
			return g
		},
		Down: func(_ testing.TB, down bool) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.isDown = down
		},
		Lose: func(_ testing.TB, n int, answer bool) (happened func() bool) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.lost, t.after = n, answer
			return func() bool {
				t.mu.Lock()
				defer t.mu.Unlock()
				was := t.lost < 0
				t.lost = -1
				return was
			}
		},
	}
}

// aside is the hook Aside.
func (t *target) aside(_ testing.TB, grants []hongbao.Grant) []bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]bool, len(grants))
	for i := range grants {
		list[i] = t.put[unit(&grants[i])]
	}
	return list
}

// memory is a correct sink. Tests replace its parts by wrong ones.
type memory struct {
	*target
	id       func(b *hongbao.Batch, g *hongbao.Grant) string
	book     func(ctx context.Context, id string, g hongbao.Grant) error
	classify func(err error) error
}

func newMemory(t *target) *memory {
	m := &memory{target: t, id: packetID, classify: classify}
	m.book = func(ctx context.Context, id string, g hongbao.Grant) error {
		return t.request(ctx, func() error { return t.book(id, g) })
	}
	return m
}

func packetID(_ *hongbao.Batch, g *hongbao.Grant) string {
	return fmt.Sprintf("%s/%d", g.Campaign, g.Packet)
}

func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errDown):
		return hongbao.Outagef(hongbao.ClassTransient, "%w", err)
	case errors.Is(err, errRefused):
		return hongbao.Errorf(hongbao.ClassPermanent, "%w", err)
	case errors.Is(err, errOther):
		return hongbao.Errorf(hongbao.ClassConflict, "%w", err)
	}
	return hongbao.Errorf(hongbao.ClassUnknown, "%w", err)
}

func (m *memory) Handle(ctx context.Context, b hongbao.Batch) []error {
	errs := make([]error, len(b.Grants))
	for i := range b.Grants {
		if errs[i] = ctx.Err(); errs[i] == nil {
			errs[i] = m.classify(m.book(ctx, m.id(&b, &b.Grants[i]), b.Grants[i]))
		}
	}
	return errs
}
