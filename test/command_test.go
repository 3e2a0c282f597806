package test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// hongbao runs the program and waits for its end.
func (c *oneCopy) hongbao(args ...string) (string, error) {
	c.t.Helper()
	cmd := c.command(args...)
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, cmd.Stderr)
	}
	return fmt.Sprint(cmd.Stdout), err
}

// copies counts the records of each event in a topic, as `hongbao tail` prints them.
func (c *oneCopy) copies(topic string) map[string]int {
	c.t.Helper()
	copies := map[string]int{}
	for text := range strings.Lines(c.ok("tail", "--kafka.brokers", c.broker.Addr, "--kafka.topic", topic)) {
		var line struct{ Event string }
		require.NoError(c.t, json.Unmarshal([]byte(text), &line))
		copies[line.Event]++
	}
	return copies
}

// exactly checks that a topic has every event up to c.seq once, except the seqs in but.
func (c *oneCopy) exactly(topic string, but ...int64) {
	c.t.Helper()
	want := map[string]int{}
	for seq := int64(1); seq <= c.seq; seq++ {
		want[fmt.Sprintf("0-%d", seq)] = 1
	}
	for _, seq := range but {
		delete(want, fmt.Sprintf("0-%d", seq))
	}
	got := c.copies(topic)
	duplicates, missing := 0, 0
	for event, n := range got {
		duplicates += n - 1
		if want[event] == 0 {
			c.t.Errorf("event %s is in topic %s", event, topic)
		}
	}
	for event := range want {
		if got[event] == 0 {
			missing++
		}
	}
	require.Zero(c.t, duplicates, "duplicates in %s", topic)
	require.Zero(c.t, missing, "missing in %s", topic)
}

// killed runs a command repeatedly and kills it with SIGKILL at random times, until a run ends first. After 2*atLeast
// kills it lets the command end. It calls each after each kill, and returns the number of kills.
func (c *oneCopy) killed(atLeast int, about time.Duration, each func(kills int), args ...string) int {
	c.t.Helper()
	for kills := 0; ; {
		cmd := c.command(args...)
		require.NoError(c.t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		wait := about/2 + rand.N(about)
		if kills == 2*atLeast {
			wait = time.Minute
		}
		var err error
		select {
		case err = <-ended:
		case <-time.After(wait):
			require.Less(c.t, kills, 2*atLeast, "the command does not end")
			_ = cmd.Process.Kill() // the command may have ended
			if err = <-ended; err != nil {
				kills++
				each(kills)
				continue
			}
		}
		require.NoError(c.t, err, "%v", cmd.Stderr)
		require.GreaterOrEqual(c.t, kills, atLeast)
		return kills
	}
}
