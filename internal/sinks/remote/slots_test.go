package remote

import (
	"github.com/hongbao-project/hongbao/internal/testkit"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// The remote is slow, so some grants find no free slot within ClaimTime. These grants wait without an attempt.
func TestNoSlotInTime(t *testing.T) {
	t.Parallel()
	slow := func(c *Config) {
		c.HeaderTimeout, c.Timeout, c.ClaimTime = 2*time.Second, 2*time.Second, 2*time.Second
		c.ConnectTimeout, c.Concurrency, c.Repeats = 2*time.Second, 1, 0
	}
	for name, change := range map[string]func(*Config){
		"sent": func(*Config) {}, "in batches": func(c *Config) { c.BatchCredits = 2 },
		"batch refused": func(c *Config) { c.BatchCredits = 6 },
		"asked":         func(c *Config) { queryable(c); c.QueryFinal = c.ClaimTime },
		"replayed":      func(c *Config) { c.Replay = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, l := newBank(t), newBooks()
			b.set(func(w http.ResponseWriter, r *http.Request, _ credit) {
				if name == "batch refused" && r.URL.Path == "/v1/credits:batch" {
					w.WriteHeader(http.StatusForbidden)
					return
				}
				<-r.Context().Done()
			})
			h := newHandler(t, b, l, slow, change)
			all := grants(1, 6)
			for i := range all {
				all[i].Time = time.Now()
			}
			errs := h.Handle(t.Context(), testkit.Batch(all))
			require.Len(t, errs, 6)
			sent := 0
			for _, err := range errs {
				require.Error(t, err)
				if !hongbao.IsWaiting(err) {
					require.Equal(t, hongbao.ClassUnknown, hongbao.ClassOf(err), "%v", err)
					sent++
				}
			}
			require.LessOrEqual(t, sent, max(1, h.cfg.BatchCredits), "an attempt counts only for requests that were sent")
			require.Positive(t, sent)
			b.set(nil)
			l.died()
			require.Eventually(t, func() bool { return h.Handle(t.Context(), testkit.Batch(all)) == nil }, patient, tick)
			b.holds(t, all)
		})
	}
}
