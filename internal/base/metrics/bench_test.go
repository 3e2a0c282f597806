package metrics

import (
	"testing"
	"time"

	"github.com/hongbao-project/hongbao"
)

// BenchmarkGrabbed measures what the counters cost a grab.
func BenchmarkGrabbed(b *testing.B) {
	c, g := New("serve", "v1", "rain").Grabs(), &hongbao.Grab{}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			start := time.Now()
			c.Grabbed(b.Context(), g, hongbao.OutcomeSoldOut, nil, time.Since(start))
		}
	})
}

// BenchmarkCalled measures what the counters cost a call.
func BenchmarkCalled(b *testing.B) {
	c := New("serve", "v1", "rain").Grabs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			start := time.Now()
			c.Called("rain", 128, time.Since(start), nil)
		}
	})
}
