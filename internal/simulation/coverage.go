package simulation

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Coverage counts what a history has reached, by group: faults, deeds, answers of scripts, ways of opening a shard,
// outcomes and error classes of grabs, and alarms.
type Coverage struct {
	mu     sync.Mutex
	counts map[string]map[string]int
}

func (c *Coverage) note(group, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]map[string]int{}
	}
	if c.counts[group] == nil {
		c.counts[group] = map[string]int{}
	}
	c.counts[group][what]++
}

// Total has the coverage of many histories: for each thing how many histories reached it, and how often in all.
type Total struct {
	Histories int
	Reached   map[string]map[string][2]int
}

// Add adds a history.
func (t *Total) Add(c *Coverage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Histories++
	if t.Reached == nil {
		t.Reached = map[string]map[string][2]int{}
	}
	for group, counts := range c.counts {
		if t.Reached[group] == nil {
			t.Reached[group] = map[string][2]int{}
		}
		for what, n := range counts {
			was := t.Reached[group][what]
			t.Reached[group][what] = [2]int{was[0] + 1, was[1] + n}
		}
	}
}

// Join adds other histories.
func (t *Total) Join(o *Total) {
	t.Histories += o.Histories
	if t.Reached == nil {
		t.Reached = map[string]map[string][2]int{}
	}
	for group, counts := range o.Reached {
		if t.Reached[group] == nil {
			t.Reached[group] = map[string][2]int{}
		}
		for what, n := range counts {
			was := t.Reached[group][what]
			t.Reached[group][what] = [2]int{was[0] + n[0], was[1] + n[1]}
		}
	}
}

// Rare is the number of histories below which something counts as hardly reached.
const Rare = 10

// Write prints everything that was reached, and then what was hardly reached or not at all, with the reason. expected
// has what a group should have.
func (t *Total) Write(w io.Writer, expected map[string][]string) {
	rare := map[string][]string{}
	for _, group := range slices.Sorted(maps.Keys(t.Reached)) {
		fmt.Fprintf(w, "\n%s: histories, times in all\n", group)
		for _, what := range slices.Sorted(maps.Keys(t.Reached[group])) {
			n := t.Reached[group][what]
			fmt.Fprintf(w, "  %6d %8d  %s\n", n[0], n[1], what)
			if n[0] < Rare {
				rare[group] = append(rare[group], why(group, what, n[0]))
			}
		}
	}
	for group, list := range expected {
		for _, what := range list {
			if !t.has(group, what) {
				rare[group] = append(rare[group], why(group, what, 0))
			}
		}
	}
	fmt.Fprintf(w, "\nreached by fewer than %d of %d histories:\n", Rare, t.Histories)
	for _, group := range slices.Sorted(maps.Keys(rare)) {
		slices.Sort(rare[group])
		fmt.Fprintf(w, "  %s:\n", group)
		for _, line := range rare[group] {
			fmt.Fprintf(w, "    %s\n", line)
		}
	}
}

// why says why something is reached by n histories only: by its whole name, or by its first or its last word.
func why(group, what string, n int) string {
	first, rest, _ := strings.Cut(what, " ")
	return fmt.Sprintf("%s (%d): %s", what, n, cmp.Or(reasons[group][what], reasons[group][first], reasons[group]["* "+rest],
		"NO REASON IS KNOWN"))
}

// has reports whether something was reached, or something that begins with it and a space.
func (t *Total) has(group, what string) bool {
	for is := range t.Reached[group] {
		if is == what || strings.HasPrefix(is, what+" ") {
			return true
		}
	}
	return false
}
