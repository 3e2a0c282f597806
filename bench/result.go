package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

// Result is one row of the table.
type Result struct {
	Name string `json:"name"`
	// Ours, Baseline and their Ratio (ours / baseline) are medians.
	Ours     float64 `json:"ours"`
	Baseline float64 `json:"baseline"`
	Ratio    float64 `json:"ratio"`
	Unit     string  `json:"unit"`
	// Want is the bound of the ratio that the project promises: at least, or at most if Below.
	Want  float64 `json:"want"`
	Below bool    `json:"below,omitempty"`
	// Least, if not 0, is promised of Ours besides, whatever the baseline did.
	Least float64 `json:"least,omitempty"`
	// How both were measured.
	HowOurs     string `json:"how_ours"`
	HowBaseline string `json:"how_baseline"`
	// All the runs, in their order.
	RunsOurs     []float64 `json:"runs_ours"`
	RunsBaseline []float64 `json:"runs_baseline"`
	// More figures beside, by name.
	Beside map[string]float64 `json:"beside,omitempty"`
}

// ok tells whether the promise was kept in this run.
func (r *Result) ok() bool {
	if r.Below {
		return r.Ratio <= r.Want
	}
	return r.Ratio >= r.Want && r.Ours >= r.Least
}

// inTurn runs baseline and ours in turn and fills in the medians.
func (r *Result) inTurn(ctx context.Context, rounds int, baseline, ours func(context.Context) (float64, error)) error {
	var runsOurs, runsBaseline []float64
	for range rounds {
		b, err := baseline(ctx)
		if err != nil {
			return fmt.Errorf("baseline: %w", err)
		}
		o, err := ours(ctx)
		if err != nil {
			return fmt.Errorf("ours: %w", err)
		}
		runsBaseline, runsOurs = append(runsBaseline, b), append(runsOurs, o)
	}
	r.compare(runsOurs, runsBaseline)
	return nil
}

// compare fills in the medians and their ratio.
func (r *Result) compare(ours, baseline []float64) {
	r.RunsOurs, r.RunsBaseline = ours, baseline
	r.Ours, r.Baseline = median(ours), median(baseline)
	r.Ratio = r.Ours / r.Baseline
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s) == 0 { // an error ended the row
		return 0
	}
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func write(path string, results []Result) error {
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

func table(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "row\tours\tbaseline\tunit\tratio\tpromised\t\t")
	for _, r := range results {
		bound, kept := "at least", "kept"
		if r.Below {
			bound = "at most"
		}
		promised := fmt.Sprintf("%s %.2f", bound, r.Want)
		if r.Least > 0 {
			promised += fmt.Sprintf(", %.0f %s", r.Least, r.Unit)
		}
		if !r.ok() {
			kept = "MISSED"
		}
		fmt.Fprintf(t, "%s\t%.6g\t%.6g\t%s\t%.2f\t%s\t%s\t\n", r.Name, round(r.Ours), round(r.Baseline), r.Unit, r.Ratio,
			promised, kept)
		for _, name := range sortedKeys(r.Beside) {
			fmt.Fprintf(t, "%s\t%.3g\t\t\t\t\t\t\n", name, r.Beside[name])
		}
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	for _, r := range results {
		fmt.Fprintf(w, "\n%s\n  ours: %s\n  baseline: %s\n", r.Name, r.HowOurs, r.HowBaseline)
	}
	return nil
}

func sortedKeys(m map[string]float64) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// round drops digits that are noise.
func round(v float64) float64 {
	if v >= 1000 {
		return float64(int(v))
	}
	return v
}
