package remote

import (
	"slices"
	"sync"
)

// known has facts that this process could not write to the ledger because the ledger was unreachable.
type known struct {
	mu sync.Mutex
	// booked has the references of credits that are booked at the remote but not yet recorded in the ledger.
	booked map[string]bool
	// unsent has, by reference, batches for which no request was sent, although they may have a pending row in the
	// ledger.
	unsent map[string][]int64
}

func (k *known) isBooked(reference string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.booked[reference]
}

func (k *known) setBooked(reference string, is bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case !is:
		delete(k.booked, reference)
	case k.booked == nil:
		k.booked = map[string]bool{reference: true}
	default:
		k.booked[reference] = true
	}
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
