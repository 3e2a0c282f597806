package producer_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/producer"
)

func TestCalled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.load(t, spec("rain", 10))
	var mu sync.Mutex
	var grabs int
	var traces []string
	p := b.producer(t, func(c *producer.Config) {
		c.Called = func(c producer.Call) {
			mu.Lock()
			defer mu.Unlock()
			grabs, traces = grabs+c.Grabs, append(traces, c.Traces...)
			if c.Campaign != "rain" || c.Err != nil || c.Took <= 0 {
				t.Errorf("%+v", c)
			}
		}
	})
	const one, two = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-01"
	for _, trace := range []string{"", one, "", two, ""} {
		g := grab("u1", "r1"+trace)
		g.Trace = trace
		_, err := p.Grab(t.Context(), g)
		require.NoError(t, err)
	}
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, 5, grabs)
	require.Equal(t, []string{one, two}, traces)
}
