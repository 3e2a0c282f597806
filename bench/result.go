package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Result is one row of the table in docs/bench.md.
type Result struct {
	Name string `json:"name"`
	// Row is the name for `make bench ROW=`. One such run may produce several results.
	Row string `json:"row"`
	// Ours, Baseline and their Ratio (ours / baseline) are medians. A row without a baseline has 0 for both.
	Ours     float64 `json:"ours"`
	Baseline float64 `json:"baseline,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"`
	Unit     string  `json:"unit"`
	// Spread says how much the rounds' ratios differ: the largest minus the smallest, divided by their median.
	Spread float64 `json:"spread,omitempty"`
	// Want is the promised bound of Ratio, or 0 for no promise. It is a lower bound, or an upper bound if Below is set.
	Want  float64 `json:"want,omitempty"`
	Below bool    `json:"below,omitempty"`
	// Least and Most, if not 0, are promised bounds of Ours, independent of the baseline.
	Least float64 `json:"least,omitempty"`
	Most  float64 `json:"most,omitempty"`
	// HowOurs and HowBaseline describe how each side was measured.
	HowOurs     string `json:"how_ours"`
	HowBaseline string `json:"how_baseline,omitempty"`
	// RunsOurs and RunsBaseline are the figures of all rounds, in order.
	RunsOurs     []float64 `json:"runs_ours,omitempty"`
	RunsBaseline []float64 `json:"runs_baseline,omitempty"`
	// Beside has additional figures by name.
	Beside map[string]float64 `json:"beside,omitempty"`
	// Plot is drawn by bench/plots; nil for none.
	Plot *Plot `json:"plot,omitempty"`
	// Machine is the machine that measured the row, and the date. Seconds is how long the measurement took.
	Machine Machine `json:"machine"`
	Seconds float64 `json:"seconds,omitempty"`
}

// Plot is a figure: lines over a common axis.
type Plot struct {
	Title string   `json:"title"`
	Unit  string   `json:"unit"`
	X     []string `json:"x"`
	Lines []Line   `json:"lines"`
}

// Line is one line of a Plot.
type Line struct {
	Name string    `json:"name"`
	Y    []float64 `json:"y"`
}

// noisySpread is the Spread above which the table marks a row as noisy, because its ratio says little.
const noisySpread = 0.25

func (r *Result) noisy() bool { return r.Spread > noisySpread }

// ok reports whether this run kept the promise.
func (r *Result) ok() bool {
	switch {
	case r.Least > 0 && r.Ours < r.Least, r.Most > 0 && r.Ours > r.Most:
		return false
	case r.Want == 0:
		return true
	case r.Below:
		return r.Ratio <= r.Want
	}
	return r.Ratio >= r.Want
}

// promise returns the promise; empty for none.
func (r *Result) promise() string {
	var all []string
	if r.Want > 0 {
		bound := "at least"
		if r.Below {
			bound = "at most"
		}
		all = append(all, fmt.Sprintf("%s %.2f", bound, r.Want))
	}
	if r.Least > 0 {
		all = append(all, fmt.Sprintf("at least %s %s", number(r.Least), r.Unit))
	}
	if r.Most > 0 {
		all = append(all, fmt.Sprintf("at most %s %s", number(r.Most), r.Unit))
	}
	return strings.Join(all, ", ")
}

// measured reports whether the figures of all rounds are known. Without them, the spread is unknown.
func (r *Result) measured() bool { return len(r.RunsOurs) > 0 }

// judgement returns the promise, and whether it was missed.
func (r *Result) judgement() string {
	promise := r.promise()
	switch {
	case promise != "" && !r.measured():
		return promise + ": to be measured"
	case !r.ok():
		return promise + ": missed"
	}
	return promise
}

// inTurn runs baseline and ours alternately, and fills in the medians.
func (r *Result) inTurn(ctx context.Context, rounds int, baseline, ours func(context.Context) (float64, error)) error {
	runs, err := inTurn(ctx, rounds, baseline, ours)
	if err != nil {
		return err
	}
	r.compare(runs[1], runs[0])
	return nil
}

// inTurn runs several functions alternately, and returns the figures of each function in the order of the rounds. Every
// second round has the reverse order, so that none always finds what another one leaves.
func inTurn(ctx context.Context, rounds int, kinds ...func(context.Context) (float64, error)) ([][]float64, error) {
	all := make([][]float64, len(kinds))
	for round := range rounds {
		for i := range kinds {
			if round%2 == 1 {
				i = len(kinds) - 1 - i
			}
			run, v := kinds[i], 0.0
			err := labelled(ctx, "kind"+strconv.Itoa(i+1), func(ctx context.Context) (err error) {
				v, err = run(ctx)
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("run %d of %d in a round: %w", i+1, len(kinds), err)
			}
			all[i] = append(all[i], v)
		}
	}
	return all, nil
}

// compare fills in the medians, their ratio, and the spread of the rounds.
func (r *Result) compare(ours, baseline []float64) {
	r.RunsOurs, r.RunsBaseline = ours, baseline
	r.Ours, r.Baseline = median(ours), median(baseline)
	if r.Baseline == 0 {
		r.Spread = spread(ours)
		return
	}
	r.Ratio = r.Ours / r.Baseline
	var ratios []float64
	for i, of := range baseline[:min(len(ours), len(baseline))] {
		ratios = append(ratios, ours[i]/of)
	}
	r.Spread = spread(ratios)
}

func spread(v []float64) float64 {
	if m := median(v); m > 0 {
		return (slices.Max(v) - slices.Min(v)) / m
	}
	return 0
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 { // the row ended with an error
		return 0
	}
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// readResults returns the results in a file, or none if the file does not exist.
func readResults(path string) ([]Result, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var all []Result
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the results of %s: %w; remove it, and measure every row again", path, err)
	}
	return all, nil
}

// merge replaces the results of one row by its new ones, and sorts all results in the order of rows. It removes the
// results of rows that no longer exist.
func merge(before []Result, row string, now []Result) []Result {
	var all []Result
	for _, r := range rows {
		if r.name == row {
			all = append(all, now...)
			continue
		}
		for i := range before {
			if before[i].Row == r.name {
				all = append(all, before[i])
			}
		}
	}
	return all
}

func writeResults(path string, results []Result) error {
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

// table prints results for a person at a terminal.
func table(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "row\tours\tbaseline\tunit\tratio\tspread\tgoal\t\t")
	for i := range results {
		r := &results[i]
		said := ""
		switch {
		case !r.ok():
			said = "MISSED"
		case r.promise() != "":
			said = "kept"
		}
		if r.noisy() {
			said += " noisy"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.2f\t%.2f\t%s\t%s\t\n", r.Name, number(r.Ours), number(r.Baseline), r.Unit, r.Ratio,
			r.Spread, r.promise(), said)
		for _, name := range slices.Sorted(maps.Keys(r.Beside)) {
			fmt.Fprintf(t, "%s\t%s\t\t\t\t\t\t\t\n", name, number(r.Beside[name]))
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

// number formats a number with about three significant digits: more would be noise.
func number(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}
