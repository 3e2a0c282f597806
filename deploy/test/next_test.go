package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// plants turn this source into the next release. That one writes a field which this build does not know into each entry,
// into a shard's meta and into each dead letter. Each old text must be in its file exactly once.
var plants = []struct{ file, old, text string }{
	{"lua/grab.lua", `table.concat(packets, '\n', 1, granted)))`, `table.concat(packets, '\n', 1, granted)), 'later', 'x')`},
	{"lua/grab.lua", `call('HSET', KEYS[1], 'seq', granted`, `call('HSET', KEYS[1], 'later', 'x', 'seq', granted`},
	{"lua/close.lua", `table.concat(reply, ' ', 6))`, `table.concat(reply, ' ', 6), 'later', 'x')`},
	{"lua/dead_letter.lua", `'last', now }`, `'last', now, 'later', 'x' }`},
}

// laterStep is the migration of the next release. The previous release can work with it.
const laterStep = `-- lowest: %d
ALTER TABLE grants ADD COLUMN later bigint NOT NULL DEFAULT 7;
`

// next builds the next release.
var next = sync.OnceValues(func() (path string, err error) {
	dir, err := testkit.Folder("next")
	if err != nil {
		return "", err
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	files, err := planted(root)
	if err != nil {
		return "", err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for name, text := range files {
		at := filepath.Join(dir, strconv.Itoa(len(overlay.Replace)))
		overlay.Replace[filepath.Join(root, name)] = at
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	list, err := json.Marshal(overlay)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), list, 0o600)
	}
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "hongbao-next")
	cmd := exec.Command("go", "build", "-trimpath", "-overlay", filepath.Join(dir, "overlay.json"), "-o", path, "./cmd/hongbao")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the next release: %w: %s", err, out)
	}
	return path, nil
})

// planted returns the files of the next release that differ from this source.
func planted(root string) (files map[string]string, err error) {
	files = map[string]string{}
	for _, p := range plants {
		if _, has := files[p.file]; !has {
			text, err := os.ReadFile(filepath.Join(root, p.file))
			if err != nil {
				return nil, err
			}
			files[p.file] = string(text)
		}
		if n := strings.Count(files[p.file], p.old); n != 1 {
			return nil, fmt.Errorf("%s has %q %d times, want once: correct the list of plants", p.file, p.old, n)
		}
		files[p.file] = strings.Replace(files[p.file], p.old, p.text, 1)
	}
	before, err := previous()
	if err != nil {
		return nil, err
	}
	version := schemaOf(root)
	for _, database := range []string{"postgres", "mysql", "sqlite"} {
		name := fmt.Sprintf("internal/ledger/db/%s/migrations/%04d_later.sql", database, version+1)
		files[name] = fmt.Sprintf(laterStep, before.schema)
	}
	return files, nil
}
