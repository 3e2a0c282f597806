package consumer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Redis is out of memory. Workers must still finish the entries in the stream, because only that frees memory. This
// holds for a running worker, for a worker that starts now, for the first worker of a sink, and beside an unreadable
// entry.
func TestOutOfMemoryDrains(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ late, poison, first bool }{
		"a worker that runs": {}, "an entry that can't be read": {poison: true}, "a worker that starts then": {late: true},
		"the first worker of the sink": {late: true, first: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := setupOwn(t, 1)
			if !c.first {
				_, err := b.keys().Group(group).Create(t.Context())
				require.NoError(t, err)
			}
			if c.poison {
				b.raw(t, "poison", "1e9")
			}
			b.add(t, 0, 1, 1, 1)
			if !c.first {
				_, err := b.keys().Group(group).ReadNew(t.Context(), "victim", 10, 0) // a worker that was killed
				require.NoError(t, err)
			}
			cfg := b.config(t, "w", newSink(nil))
			cfg.Lease = 2 * time.Second
			full := func() { require.NoError(t, b.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err()) }
			want := int64(3)
			if c.late {
				full()
			}
			w := start(t, cfg)
			if !c.late {
				want = 4
				b.add(t, 0, 1)
				testkit.Eventually(t, soon, func() bool { return w.Stats().Done >= 1 }, "up")
				full()
			}
			testkit.Eventually(t, soon, func() bool { return w.Stats().Done == want }, "everything is finished")
		})
	}
}
