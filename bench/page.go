package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A generated table in README.md or docs/sizing.md is between these two lines. Only writePages writes there.
const (
	tableBegin = "<!-- bench -->\n"
	tableEnd   = "<!-- /bench -->"
)

// tables maps each file with a generated table to the function that returns the table.
var tables = map[string]func(results []Result) string{
	"README.md": readmeTable, "README.zh-CN.md": readmeTable, "docs/sizing.md": sizingTable,
}

// sizingRows are the rows of the table in docs/sizing.md, each with the program that does the work.
var sizingRows = []struct{ row, what string }{
	{"grab_1x512", "a shard, asked by one program with 512 callers"},
	{"grab_64x8", "a shard, asked by 64 programs with 8 callers each"},
	{"grab_256x2", "a shard, asked by 256 programs with 2 callers each"},
	{"http_grab", "one `hongbao serve` with its shard"},
	{"memory_per_grant", "Redis, for each grant that is settled"},
	{"settle_postgres", "a worker of sink balance on PostgreSQL, for two shards"},
	{"settle_mariadb", "a worker of sink balance on MariaDB, for two shards"},
	{"settle_sqlite", "a worker of sink balance on SQLite, for two shards"},
	{"settle_http", "a worker of sink balance at a remote that takes 5 ms, for two shards"},
	{"publish_kafka", "a worker of sink kafka, for two shards"},
	{"replay", "a replay into a topic"},
}

// notesFile has notes that people wrote about rows: why a row missed its goal, which settings were best.
const notesFile = "bench/notes.md"

// writePages writes the tables and docs/bench.md from the results and the notes.
func writePages(root string) error {
	results, err := readResults(filepath.Join(root, resultsFile))
	if err != nil {
		return err
	}
	notes, err := readNotes(filepath.Join(root, notesFile))
	if err != nil {
		return err
	}
	for name, table := range tables {
		path := filepath.Join(root, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		now, err := withTable(string(text), table(results))
		if err != nil {
			return fmt.Errorf("write the table of %s: %w", path, err)
		}
		if err := os.WriteFile(path, []byte(now), 0o644); err != nil {
			return fmt.Errorf("write the table: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "docs/bench.md"), []byte(page(results, notes)), 0o644); err != nil {
		return fmt.Errorf("write the page of the rows: %w", err)
	}
	return nil
}

// readNotes returns the text below each heading "## row" of a file.
func readNotes(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the notes: %w", err)
	}
	notes := map[string]string{}
	for i, part := range strings.Split("\n"+string(text), "\n## ") {
		name, note, _ := strings.Cut(part, "\n")
		if note = strings.TrimSpace(note); i == 0 {
			continue
		}
		if notes[name] != "" || note == "" {
			return nil, fmt.Errorf("read the notes of %s: want one heading \"## %s\", with a text below it", path, name)
		}
		notes[name] = note
	}
	return notes, nil
}

// withTable replaces the table between the lines tableBegin and tableEnd of a text.
func withTable(text, table string) (string, error) {
	before, rest, begun := strings.Cut(text, tableBegin)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !begun || !ended {
		return "", fmt.Errorf("it has no lines %q and %q: put them where the table belongs", strings.TrimSpace(tableBegin),
			tableEnd)
	}
	return before + tableBegin + table + tableEnd + after, nil
}

// readmeRows are the rows that the READMEs show, each with a sentence about the comparison.
var readmeRows = []struct{ row, what string }{
	{"grab_1x512", "grabs a second of one program with 512 callers; baseline: the classic script"},
	{"grab_1x512_cpu", "Redis' processor time for such a grab"},
	{"grab_256x2", "grabs a second of 256 programs with 2 callers each; baseline: the classic script"},
	{"http_grab", "grabs a second over HTTP; baseline: a bare net/http handler that decides nothing"},
	{"settle_postgres", "wins a second into PostgreSQL; baseline: a loop over the same tables without the guarantees"},
	{"publish_kafka_writer", "wins a second into Kafka, one copy each; baseline: kafka-go's Writer"},
	{"publish_kafka_franz_none", "the same; baseline: franz-go's idempotent producer, which sends from memory"},
	{"memory_per_grant", "Redis' memory for a win that is settled; baseline: the classic script"},
}

// readmeTable returns the figures that the READMEs show.
func readmeTable(results []Result) string {
	var b strings.Builder
	b.WriteString("| what | ours | baseline | unit | ratio | goal | measured |\n|---|---|---|---|---|---|---|\n")
	for _, row := range readmeRows {
		if r := find(results, row.row); r != nil {
			fmt.Fprintf(&b, "| [%s](docs/bench.md#%s) | %s | %s | %s | %s | %s | %s |\n", row.what, r.Name, number(r.Ours),
				known(r.Baseline), r.Unit, ratio(r), r.judgement(), r.Machine.Date)
		}
	}
	return b.String()
}

// sizingTable returns the figures that docs/sizing.md uses.
func sizingTable(results []Result) string {
	var b strings.Builder
	b.WriteString("| what does the work | row | here | unit | measured |\n|---|---|---|---|---|\n")
	for _, size := range sizingRows {
		if r := find(results, size.row); r != nil {
			fmt.Fprintf(&b, "| %s | [%s](bench.md#%[2]s) | %s | %s | %s |\n", size.what, r.Name, number(r.Ours), r.Unit,
				r.Machine.Date)
		}
	}
	return b.String()
}

func find(results []Result, row string) *Result {
	i := slices.IndexFunc(results, func(r Result) bool { return r.Name == row })
	if i < 0 {
		return nil
	}
	return &results[i]
}

func known(v float64) string {
	if v == 0 {
		return ""
	}
	return number(v)
}

func ratio(r *Result) string {
	if r.Baseline == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", r.Ratio)
}

const pageHead = `# The rows of make bench

` + "`make bench`" + ` writes this page, the tables of the READMEs and ` + "`bench/results.json`" + `; ` +
	"`make bench ROW=grab_1x512`" + ` measures
one row again and leaves the others, each with its own date. Do not edit this page. The explanations of rows, above all
why they missed their goals, come from ` + "`bench/notes.md`" + `.%s

The command needs what ` + "`make test`" + ` needs ([set-up](../CONTRIBUTING.md#set-up)), and fetches the
Go modules of the systems that it compares with.

Every row runs ours and its baseline in turn, in one run on one machine, and compares the medians. Most goals are ratios,
because absolute numbers depend on the machine. [Sizing](sizing.md) explains how to use them. The process that measures
collects garbage at 400 %%, for both sides.

## How noise is seen

- *Spread* is the largest ratio of a round less the smallest, by their median. A row whose spread is above ` + "%.2f" + ` is
  marked as noisy: measure it again on a quiet machine before you believe it.
- *Others* is the share of the processors that other programs used in the second before the row began.
- *Stolen* is the share of its processors that the machine's host has taken away since it started.
- Processor time for each grab (INFO cpu, getrusage) moves less than a rate when others load the machine; so rows have
  it beside their rates.

## The table

| row | ours | baseline | unit | ratio | spread | rounds | goal | measured | others | stolen |
|---|---|---|---|---|---|---|---|---|---|---|
`

// page returns the text of docs/bench.md.
func page(results []Result, notes map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, pageHead, minutes(results), noisySpread)
	for i := range results {
		r := &results[i]
		spread, rounds, others, stolen := "-", "-", "-", "-"
		if r.measured() {
			spread, rounds = known(r.Spread), strconv.Itoa(len(r.RunsOurs))
			others, stolen = fmt.Sprintf("%.0f %%", 100*r.Machine.Busy), fmt.Sprintf("%.1f %%", 100*r.Machine.Stolen)
		}
		if r.noisy() {
			spread += " noisy"
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", r.Name,
			strings.ReplaceAll(r.Name, ".", ""), number(r.Ours), known(r.Baseline), r.Unit, ratio(r), spread, rounds,
			r.judgement(), r.Machine.Date, others, stolen)
	}
	machines(&b, results)
	b.WriteString("\n## How each row was measured\n")
	notes = maps.Clone(notes)
	for i := range results {
		how(&b, &results[i])
		if note := notes[results[i].Name]; note != "" {
			fmt.Fprintf(&b, "\n%s\n", note)
		}
		delete(notes, results[i].Name)
	}
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		fmt.Fprintf(&b, "\n### %s\n\nNot measured yet.\n\n%s\n", name, notes[name])
	}
	return b.String()
}

// minutes returns how long a run of all but the slow rows took; empty if that is unknown.
func minutes(results []Result) string {
	took := map[string]float64{}
	for i := range results {
		if r := &results[i]; !slices.Contains(slow, r.Row) {
			took[r.Row] = r.Seconds
		}
	}
	all := 0.0
	for _, seconds := range took {
		all += seconds
	}
	if all == 0 {
		return ""
	}
	return fmt.Sprintf(" The rows took\n%.0f minutes together. %s takes longer, and runs only if ROW names it.", all/60,
		strings.Join(slow, ", "))
}

// machines lists each machine once, with the rows that it measured.
func machines(b *strings.Builder, results []Result) {
	rows, order := map[string][]string{}, []string{}
	for i := range results {
		m := &results[i].Machine
		var versions []string
		for _, name := range slices.Sorted(maps.Keys(m.Versions)) {
			versions = append(versions, name+" "+m.Versions[name])
		}
		line := fmt.Sprintf("%s, at commit %s: %s. %s", m.Date, m.Commit, m, strings.Join(versions, ", "))
		if rows[line] == nil {
			order = append(order, line)
		}
		rows[line] = append(rows[line], results[i].Name)
	}
	b.WriteString("\n## Machine and versions\n\n")
	for _, line := range order {
		fmt.Fprintf(b, "- %s. Rows: %s.\n", line, strings.Join(rows[line], ", "))
	}
}

func how(b *strings.Builder, r *Result) {
	fmt.Fprintf(b, "\n### %s\n\nOurs: %s.\n", r.Name, r.HowOurs)
	if r.HowBaseline != "" {
		fmt.Fprintf(b, "\nBaseline: %s.\n", r.HowBaseline)
	}
	if len(r.RunsOurs) > 0 {
		fmt.Fprintf(b, "\nRounds: ours %s", numbers(r.RunsOurs))
		if len(r.RunsBaseline) > 0 {
			fmt.Fprintf(b, "; baseline %s", numbers(r.RunsBaseline))
		}
		fmt.Fprintf(b, " %s.\n", r.Unit)
	}
	if len(r.Beside) > 0 {
		b.WriteString("\n| beside | |\n|---|---|\n")
		for _, name := range slices.Sorted(maps.Keys(r.Beside)) {
			fmt.Fprintf(b, "| %s | %s |\n", name, number(r.Beside[name]))
		}
	}
	if r.Plot != nil {
		fmt.Fprintf(b, "\n![%s](img/bench-%s.svg)\n", r.Plot.Title, r.Name)
	}
}

func numbers(v []float64) string {
	all := make([]string, len(v))
	for i := range v {
		all[i] = number(v[i])
	}
	return strings.Join(all, ", ")
}
