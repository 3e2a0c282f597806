package remote

import (
	"slices"
	"sync"

	"github.com/hongbao-project/hongbao"
)

// known has facts that this process could not write to the ledger because the ledger was unreachable.
type known struct {
	mu sync.Mutex
	// booked has, by reference, the grants whose credits are booked at the remote but not yet recorded in the ledger.
	booked map[string]hongbao.Grant
	// unsent has, by reference, batches for which no request was sent, although they may have a pending row in the
	// ledger.
	unsent map[string][]int64
}

// bookedAs returns the grant whose credit is booked; is reports whether there is one.
func (k *known) bookedAs(reference string) (g hongbao.Grant, is bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g, is = k.booked[reference]
	return g, is
}

func (k *known) setBooked(reference string, g *hongbao.Grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.booked == nil {
		k.booked = map[string]hongbao.Grant{}
	}
	k.booked[reference] = *g
}

func (k *known) forgetBooked(reference string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.booked, reference)
}

func (k *known) setUnsent(reference string, batch int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unsent == nil {
		k.unsent = map[string][]int64{}
	}
	k.unsent[reference] = append(k.unsent[reference], batch)
}

// forgetUnsent reports whether it is certain that no request was sent for the batch. It deletes all unsent batches of
// the reference.
func (k *known) forgetUnsent(reference string, batch int64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := slices.Contains(k.unsent[reference], batch)
	delete(k.unsent, reference)
	return was
}
