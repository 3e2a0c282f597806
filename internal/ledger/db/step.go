package db

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// Step is one step of the schema. The first one is the baseline, which creates all tables. Until the first release
// a change of the tables edits the baseline and raises its number, because no number is used again: those below it
// belong to builds that were never released. A released step must keep its checksum, which existing databases store.
type Step struct {
	Version int64
	Name    string
	Script  string
	Sum     string
	// Index, if not empty, is the name and the columns of an index that the step adds. If the database already has
	// tables, an Indexer creates the index before the step, while others write.
	Index string
	// Lowest is the lowest schema version whose builds can work with this step; once the step has run, older builds are
	// refused. The script's first line sets it.
	Lowest int64
}

// LoadSteps reads the scripts of a folder. The first file may have any number, each later one the next number.
func LoadSteps(files fs.FS, folder string) ([]Step, error) {
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	steps := make([]Step, len(entries))
	for i, e := range entries {
		script, err := fs.ReadFile(files, path.Join(folder, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read the migrations: %w", err)
		}
		number, _, _ := strings.Cut(e.Name(), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if want := Newest(steps[:i]) + 1; err != nil || i > 0 && version != want {
			return nil, fmt.Errorf("migration %s: want the number %04d at its beginning", e.Name(), want)
		}
		sum := sha256.Sum256(script)
		steps[i] = Step{Version: version, Name: e.Name(), Script: string(script), Sum: hex.EncodeToString(sum[:])}
		if _, err := fmt.Sscanf(steps[i].Script, "-- lowest: %d\n", &steps[i].Lowest); err != nil {
			return nil, fmt.Errorf("migration %s: want \"-- lowest: VERSION\" as its first line: %w", e.Name(), err)
		}
		steps[i].readDirectives()
	}
	return steps, nil
}

// MustLoadSteps is LoadSteps for the embedded steps of a database: if they are faulty, the build is, and it panics.
func MustLoadSteps(files fs.FS, folder string) []Step {
	steps, err := LoadSteps(files, folder)
	if err != nil {
		panic(err)
	}
	return steps
}

// Newest returns the version of the schema after these steps.
func Newest(steps []Step) int64 {
	if len(steps) == 0 {
		return 0
	}
	return steps[len(steps)-1].Version
}

// readDirectives reads the optional settings in the head of a script. A script that was rewritten without changing its
// result names its released checksum, because databases and older builds compare it.
func (m *Step) readDirectives() {
	for line := range strings.Lines(m.Script) {
		if sum, ok := strings.CutPrefix(line, "-- sum: "); ok {
			m.Sum = strings.TrimSpace(sum)
		} else if index, ok := strings.CutPrefix(line, "-- index: "); ok {
			m.Index = strings.TrimSpace(index)
		}
	}
}

// Schema is the record of the steps that a database has.
type Schema struct {
	Steps []Step // without their scripts
	// Done is the number of finished steps. Only MySQL can have unfinished steps, since it can't change the schema in a
	// transaction.
	Done int64
}

// Version returns the version of the last finished step; 0 if none is finished.
func (h *Schema) Version() int64 { return Newest(h.Steps[:h.Done]) }
