package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The READMEs, docs/sizing.md and docs/bench.md match bench/results.json and bench/notes.md. Every result belongs to a
// row that exists.
func TestPagesSayWhatWasMeasured(t *testing.T) {
	t.Parallel()
	results, err := readResults("results.json")
	require.NoError(t, err)
	require.NotEmpty(t, results)
	notes, err := readNotes("notes.md")
	require.NoError(t, err)
	for name, table := range tables {
		text, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		want, err := withTable(string(text), table(results))
		require.NoError(t, err)
		require.Equal(t, want, string(text), "run: go run ./bench -pages")
	}
	for _, size := range sizingRows {
		require.Contains(t, sizingTable(results), "["+size.row+"]", "docs/sizing.md uses a row without a result")
	}
	text, err := os.ReadFile("../docs/bench.md")
	require.NoError(t, err)
	require.Equal(t, page(results, notes), string(text), "run: go run ./bench -pages")
	for i := range results {
		r := &results[i]
		if r.Plot != nil {
			require.FileExists(t, "../docs/img/bench-"+r.Name+".svg", "run: go run -C bench/plots .")
		}
		_, err := pick(r.Row)
		require.NoError(t, err)
	}
}

// New results of one row replace its old results. The results of other rows stay, in the order of the table.
func TestMerge(t *testing.T) {
	t.Parallel()
	first, second, last := rows[0].name, rows[1].name, rows[len(rows)-1].name
	before := []Result{{Name: "a", Row: first}, {Name: "b", Row: second}, {Name: "b_cpu", Row: second}, {Name: "gone", Row: "gone"}}
	names := func(all []Result) (out []string) {
		for i := range all {
			out = append(out, all[i].Name)
		}
		return out
	}
	now := merge(before, last, []Result{{Name: "z", Row: last}})
	require.Equal(t, []string{"a", "b", "b_cpu", "z"}, names(now))
	require.Equal(t, []string{"a", "B", "z"}, names(merge(now, second, []Result{{Name: "B", Row: second}})))
}

// A note about a row appears below that row in docs/bench.md, even if the row was never measured.
func TestNotesStandBelowTheirRows(t *testing.T) {
	t.Parallel()
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "notes.md")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	notes, err := readNotes(write("# Notes\n\nNot of a row.\n\n## old\n\nThe disk.\n\nIts fsync.\n\n## new\n\nLater.\n"))
	require.NoError(t, err)
	text := page([]Result{{Name: "old", HowOurs: "by hand", Row: "old", Seconds: 120}}, notes)
	require.Contains(t, text, "### old\n\nOurs: by hand.\n\nThe disk.\n\nIts fsync.\n")
	require.Contains(t, text, "### new\n\nNot measured yet.\n\nLater.\n")
	require.NotContains(t, text, "Not of a row")
	require.Contains(t, text, "2 minutes together")
	for _, wrong := range []string{"## old\n\n## new\n\nLater.\n", "## a\n\nOne.\n\n## a\n\nTwo.\n"} {
		_, err = readNotes(write(wrong))
		require.ErrorContains(t, err, "want one heading")
	}
}

func TestPromises(t *testing.T) {
	t.Parallel()
	kept := Result{Want: 0.6, Unit: "us"}
	kept.compare([]float64{6, 6, 7}, []float64{10, 10, 10})
	require.True(t, kept.ok())
	require.InDelta(t, 1.0/6, kept.Spread, 0.001)
	require.False(t, kept.noisy())
	kept.compare([]float64{6, 6, 9}, []float64{10, 10, 10})
	require.True(t, kept.noisy())
	missed := Result{Want: 0.6, Below: true}
	missed.compare([]float64{7}, []float64{10})
	require.False(t, missed.ok())
	require.Equal(t, "at most 0.60: missed", missed.judgement())
	old := Result{Name: "old", Want: 0.6, Ratio: 0.9, Machine: Machine{Date: "2026-11-22"}}
	require.Equal(t, "at least 0.60: to be measured", old.judgement())
	require.Contains(t, page([]Result{old}, nil), "| - | - | at least 0.60: to be measured | 2026-11-22 | - | - |")
	late := Result{Most: 100, Unit: "ms"}
	late.compare([]float64{101}, nil)
	require.False(t, late.ok())
	require.Equal(t, "at most 100 ms", late.promise())
}
