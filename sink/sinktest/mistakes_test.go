package sinktest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"

	"github.com/hongbao-project/hongbao"
)

// buffers keeps the grants of a call in memory, and stores them in the next one.
func buffers(m *memory) hongbao.Handler {
	var mu sync.Mutex
	var kept []hongbao.Grant
	return hongbao.HandlerFunc(func(ctx context.Context, b hongbao.Batch) []error {
		mu.Lock()
		defer mu.Unlock()
		m.Handle(ctx, some(b, kept))
		kept = b.Grants
		return nil
	})
}

// remembers keeps the ids in the process. The target does not compare them.
func remembers(m *memory) hongbao.Handler {
	var mu sync.Mutex
	seen, process := map[string]bool{}, rand.Text()
	book := m.book
	m.book = func(ctx context.Context, id string, g hongbao.Grant) error {
		mu.Lock()
		defer mu.Unlock()
		if seen[id] {
			return nil
		}
		err := book(ctx, id+process, g)
		seen[id] = err == nil
		return err
	}
	return m
}

func (m *memory) readsFirst(ctx context.Context, b hongbao.Batch) []error {
	_ = b.Grants[0].Campaign
	return m.Handle(ctx, b)
}

func (m *memory) sorts(ctx context.Context, b hongbao.Batch) []error {
	slices.SortFunc(b.Grants, func(a, b hongbao.Grant) int { return cmp.Compare(a.Seq, b.Seq) })
	return m.Handle(ctx, b)
}

func (m *memory) refusesRepeats(ctx context.Context, b hongbao.Batch) []error {
	known := m.known(&b)
	errs := m.Handle(ctx, b)
	for i := range errs {
		if known[i] {
			errs[i] = hongbao.Errorf(hongbao.ClassConflict, "the target has it already")
		}
	}
	return errs
}

// known returns which grants of a batch the target has.
func (m *memory) known(b *hongbao.Batch) []bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]bool, len(b.Grants))
	for i := range b.Grants {
		_, list[i] = m.booked[m.id(b, &b.Grants[i])]
	}
	return list
}

// skipsBatches takes a batch for a repeat if its first grant is one.
func (m *memory) skipsBatches(ctx context.Context, b hongbao.Batch) []error {
	if slices.Contains(m.known(&b), true) {
		return nil
	}
	return m.Handle(ctx, b)
}

// readsThenWrites finds the unknown grants of a batch, and then stores them all.
func (m *memory) readsThenWrites(ctx context.Context, b hongbao.Batch) []error {
	known := m.known(&b)
	errs := make([]error, len(b.Grants))
	for i, g := range b.Grants {
		if !known[i] {
			errs[i] = m.classify(m.request(ctx, func() error {
				m.booked[m.id(&b, &g)] = g
				m.applied[unit(&g)]++
				return nil
			}))
		}
	}
	return errs
}

// readThenWrite asks for an id in one request, and stores it in another one.
func readThenWrite(m *memory) {
	m.book = func(ctx context.Context, id string, g hongbao.Grant) error {
		known := false
		if err := m.request(ctx, func() error { _, known = m.booked[id]; return nil }); err != nil || known {
			return err
		}
		return m.request(ctx, func() error {
			m.booked[id] = g
			m.applied[unit(&g)]++
			return nil
		})
	}
}

// withoutContext ignores the context.
func (m *memory) withoutContext(ctx context.Context, b hongbao.Batch) []error {
	return m.Handle(context.WithoutCancel(ctx), b)
}

// permanentWhenOver makes dead letters if the context is over.
func (m *memory) permanentWhenOver(ctx context.Context, b hongbao.Batch) []error {
	if err := ctx.Err(); err != nil {
		return slices.Repeat([]error{hongbao.Errorf(hongbao.ClassPermanent, "%w", err)}, len(b.Grants))
	}
	return m.Handle(ctx, b)
}

// stopsSilently ends with the context, and returns nil for the grants that it has not booked.
func (m *memory) stopsSilently(ctx context.Context, b hongbao.Batch) []error {
	if ctx.Err() != nil {
		return m.Handle(ctx, b)
	}
	errs := m.Handle(ctx, b)
	for i := range errs {
		if ctx.Err() != nil && errors.Is(errs[i], ctx.Err()) {
			errs[i] = nil
		}
	}
	return errs
}

func (m *memory) onlyErrors(ctx context.Context, b hongbao.Batch) []error {
	return slices.DeleteFunc(m.Handle(ctx, b), func(err error) bool { return err == nil })
}

// oneForAll returns the first error for all grants.
func (m *memory) oneForAll(ctx context.Context, b hongbao.Batch) []error {
	errs := m.Handle(ctx, b)
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return slices.Repeat(errs[i:i+1], len(errs))
	}
	return errs
}

// shifted returns each result at the place of the grant before.
func (m *memory) shifted(ctx context.Context, b hongbao.Batch) []error {
	errs := m.Handle(ctx, b)
	return slices.Concat(errs[min(1, len(errs)):], errs[:min(1, len(errs))])
}

// claims claims an id at the target first, and gives it back at the end. Nobody ends the claim of a dead worker.
func claims(m *memory) {
	book := m.book
	m.book = func(ctx context.Context, id string, g hongbao.Grant) error {
		taken := false
		if err := m.request(ctx, func() error {
			taken = !m.claims[id]
			m.claims[id] = true
			return nil
		}); err != nil {
			return err
		}
		if !taken {
			return errClaimed
		}
		if err := book(ctx, id, g); err != nil {
			return err
		}
		return m.request(ctx, func() error { delete(m.claims, id); return nil })
	}
	m.classify = func(err error) error {
		if errors.Is(err, errClaimed) {
			return hongbao.Waitingf("%w", err)
		}
		return classify(err)
	}
}

var errClaimed = errors.New("another worker has claimed the id")

// waitsPermanently waits until the target is up, and does not look at the context.
func waitsPermanently(m *memory) {
	book := m.book
	m.book = func(ctx context.Context, id string, g hongbao.Grant) error {
		for {
			if err := book(context.WithoutCancel(ctx), id, g); !errors.Is(err, errDown) || m.over.Load() {
				return err
			}
		}
	}
}

// repeatsUnderAnotherID sends a lost request again as a new one.
func repeatsUnderAnotherID(m *memory) {
	book := m.book
	m.book = func(ctx context.Context, id string, g hongbao.Grant) error {
		err := book(ctx, id, g)
		if errors.Is(err, errLost) {
			return book(ctx, id+"-again", g)
		}
		return err
	}
}
