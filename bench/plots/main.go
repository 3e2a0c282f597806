// Command plots draws the figures of docs/bench.md from bench/results.json. It is a module of its own, so that
// Hongbao's users do not inherit its dependencies. `make bench` runs it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-analyze/charts"
)

// result has the fields of a row of bench/results.json that a figure needs.
type result struct {
	Name string `json:"name"`
	Plot *struct {
		Title string   `json:"title"`
		Unit  string   `json:"unit"`
		X     []string `json:"x"`
		Lines []struct {
			Name string    `json:"name"`
			Y    []float64 `json:"y"`
		} `json:"lines"`
	} `json:"plot"`
}

func main() {
	results := flag.String("results", "../results.json", "file with the rows")
	out := flag.String("out", "../../docs/img", "folder for bench-NAME.svg, one file for each row with a figure")
	flag.Parse()
	if err := run(*results, *out); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

func run(results, out string) error {
	data, err := os.ReadFile(results)
	if err != nil {
		return fmt.Errorf("read the rows: %w", err)
	}
	var all []result
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("read the rows of %s: %w", results, err)
	}
	for i := range all {
		if all[i].Plot == nil {
			continue
		}
		svg, err := draw(&all[i])
		if err != nil {
			return fmt.Errorf("draw %s: %w", all[i].Name, err)
		}
		if err := os.WriteFile(filepath.Join(out, "bench-"+all[i].Name+".svg"), svg, 0o644); err != nil {
			return fmt.Errorf("write a figure: %w", err)
		}
	}
	return nil
}

func draw(r *result) ([]byte, error) {
	values, names := make([][]float64, len(r.Plot.Lines)), make([]string, len(r.Plot.Lines))
	for i, line := range r.Plot.Lines {
		if len(line.Y) != len(r.Plot.X) {
			return nil, fmt.Errorf("line %q has %d values for %d labels", line.Name, len(line.Y), len(r.Plot.X))
		}
		values[i], names[i] = line.Y, line.Name
	}
	opt := charts.NewLineChartOptionWithData(values)
	opt.Title.Text = r.Plot.Title + ", " + r.Plot.Unit
	opt.XAxis.Labels, opt.Legend.SeriesNames = r.Plot.X, names
	opt.Legend.Offset.Top = "30"
	opt.Padding = charts.NewBoxEqual(20)
	zero := 0.0
	opt.YAxis = []charts.YAxisOption{{Min: &zero}}
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputSVG, Width: 800, Height: 400})
	if err := p.LineChart(opt); err != nil {
		return nil, err
	}
	return p.Bytes()
}
