package httpsink

import (
	"sync"
	"sync/atomic"
)

// Each splits n indexes into parts of size, calls do for each part, and waits. At most atOnce calls run at once. With
// one goroutine for each grant, thousands of them would only wait for a slot.
func Each(n, size, atOnce int, do func(first, last int)) {
	if n <= size {
		if n > 0 {
			do(0, n)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min((n+size-1)/size, atOnce) {
		wg.Go(func() {
			for {
				first := int(next.Add(int64(size))) - size
				if first >= n {
					return
				}
				do(first, min(first+size, n))
			}
		})
	}
	wg.Wait()
}
