package demo

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What changes is one line on a terminal, below all that stays.
func TestScreenOnATerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &screen{out: &out, terminal: true}
	s.show("a", 1)
	fmt.Fprintln(s, "worker 1 is killed")
	s.show("b", 1)
	s.leave()
	fmt.Fprintln(s, "done")
	require.Equal(t, eraseLine+"a"+eraseLine+"worker 1 is killed\na"+eraseLine+"b\ndone\n", out.String())
}

// Elsewhere there is a line for what is new, and one a second.
func TestScreenElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := newScreen(&out)
		s.show("a", 1)
		s.show("b", 1)
		s.show("c", 2)
		time.Sleep(time.Second) //nolint:forbidigo // the clock is synctest's
		s.show("d", 2)
		s.leave()
		require.Equal(t, "a\nc\nd\n", out.String())
	})
}

func TestBar(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n, all int64
		want   string
	}{{0, 10, "............"}, {5, 10, "######......"}, {10, 10, "############"}, {11, 10, "############"}, {-1, 10, "............"},
		{0, 0, "............"}} {
		require.Equal(t, c.want, bar(c.n, c.all))
	}
}
