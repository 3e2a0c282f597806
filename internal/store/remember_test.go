package store

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/hongbao-project/hongbao"
)

// BenchmarkRememberedGrant measures how many bytes of heap a process needs to remember one reported grant. It
// compares calls of 1 and of 64 grabs.
func BenchmarkRememberedGrant(b *testing.B) {
	for _, size := range []int{1, 64} {
		b.Run(fmt.Sprint("grabs=", size), func(b *testing.B) {
			k := &Shard{Keys: Keys{}, store: &Store{}, state: &state{}}
			w := &k.state.witness
			call := &GrabCall{Currency: "CNY", Grabs: make([]*hongbao.Grab, size)}
			answers := make([]hongbao.Answer, size)
			seq, now := int64(1_000_000), time.Now()
			heap := func() uint64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			before := heap()
			for b.Loop() {
				for i := range size {
					seq++
					call.Grabs[i] = &hongbao.Grab{User: fmt.Sprintf("user-%07d", seq), RequestID: fmt.Sprintf("request-%08d", seq)}
					answers[i] = hongbao.Answer{Outcome: hongbao.OutcomeGranted, Time: now, Receipts: []hongbao.Receipt{{Packet: seq, Amount: 888,
						Seq: seq, Time: now, RequestID: call.Grabs[i].RequestID}}}
				}
				w.remember(k.Place("spring-rain"), call, answers, 1)
			}
			grants := int64(0)
			for i := range w.reported {
				grants += w.reported[i].last - w.reported[i].first + 1
			}
			b.ReportMetric(float64(heap()-before)/float64(grants), "B/grant")
			runtime.KeepAlive(w)
		})
	}
}
