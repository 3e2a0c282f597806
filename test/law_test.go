package test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The import law: cmd -> configs -> stages -> root, and lua between the stages and Redis. See CONTRIBUTING.md.

const module = "github.com/hongbao-project/hongbao"

// stages are the packages that do one thing each and do not know each other; true for those that may import lua and internal/shards.
var stages = map[string]bool{
	"internal/audit": true, "campaign": true, "internal/closing": true, "consumer": true, "dedup": true, "internal/httpapi": false, "internal/lock": true, "producer": true,
	"publisher": false, "internal/ledger": false, "internal/remote": false, "internal/replay": true, "settlement": false, "subscriber": false,
}

// clients are the libraries that speak to a server, with the packages that may import them. cmd, configs, bench and
// test may import them all.
var clients = map[string][]string{
	"github.com/redis/go-redis":     {"internal/shards", "internal/shards/shardstest", "internal/audit", "campaign", "internal/closing", "consumer", "dedup", "internal/lock", "producer", "internal/replay", "internal/testkit"},
	"github.com/segmentio/kafka-go": {"publisher", "subscriber", "topic", "internal/testkit"},
	"database/sql":                  {"internal/ledger", "subscriber", "internal/testkit"},
	"github.com/jackc/pgx":          {"internal/ledger", "internal/testkit"},
	"modernc.org/sqlite":            {"internal/ledger"},
	"net/http":                      {"internal/httpapi", "internal/remote"},
	"github.com/sony/gobreaker":     {"internal/remote"},
}

// broken tells which law an import breaks, "" if none. from is a folder of the repository, "." for the root package; to
// is an import path; test is true for a file that ends with _test.go.
func broken(from, to string, test bool) string {
	if to == module || strings.HasPrefix(to, module+"/") {
		return brokenInside(from, strings.TrimPrefix(strings.TrimPrefix(to, module), "/"), test)
	}
	first, _, _ := strings.Cut(to, "/")
	if from == "." && !test && strings.Contains(first, ".") {
		return "the root package imports the standard library only"
	}
	if test || anything(from) {
		return ""
	}
	for lib, users := range clients {
		if (to == lib || strings.HasPrefix(to, lib+"/")) && !slices.Contains(users, from) {
			return fmt.Sprintf("only %s may import %s", strings.Join(users, ", "), lib)
		}
	}
	return ""
}

// anything tells whether a folder is where all comes together.
func anything(from string) bool {
	top, _, _ := strings.Cut(from, "/")
	return from == "internal/recovery" || top == "cmd" || top == "configs" || top == "bench" || top == "test" || top == "examples"
}

func brokenInside(from, to string, test bool) string {
	top, _, _ := strings.Cut(to, "/")
	_, fromStage := stages[from]
	_, toStage := stages[to]
	switch {
	case test && from == to:
		return "" // a package's own external test
	case top == "cmd" || top == "bench" || top == "test" || top == "examples":
		return "nobody imports " + top
	case to == "internal/shards/shardstest" || from == "internal/shards/shardstest":
		if test || redisSide(to) && to != "internal/shards/shardstest" {
			return ""
		}
		return "internal/shards/shardstest is for tests only, and imports internal/shards and lua only"
	case to == "internal/testkit":
		if test || strings.HasPrefix(from, "test/") || from == "test" || from == "bench" {
			return ""
		}
		return "internal/testkit is for tests, bench and test only"
	case to == "internal/recovery":
		if strings.HasPrefix(from, "cmd/") {
			return ""
		}
		return "internal/recovery is wired by cmd"
	case to == "internal/group":
		if strings.HasPrefix(from, "cmd/") {
			return ""
		}
		return "cmd runs and stops the parts"
	case to == "internal/money":
		if from == "internal/audit" || strings.HasPrefix(from, "cmd/") || test {
			return ""
		}
		return "amounts are written for a person by cmd and by the audit's report only"
	case to == "internal/payment":
		if fromStage || from == "internal/recovery" || strings.HasPrefix(from, "cmd/") || test {
			return ""
		}
		return "payment has words of the stages"
	case to == "internal/flatjson":
		if from == "internal/httpapi" || from == "internal/remote" {
			return ""
		}
		return "JSON from outside comes in by httpapi and remote only"
	case test && (redisSide(to) || to == "campaign"):
		return "" // a test of Redis needs keys and something to load into them
	case anything(from):
		if to == "configs" && strings.HasPrefix(from, "configs") {
			return "configs is one package"
		}
		return ""
	case to == "topic":
		if from == "publisher" || from == "subscriber" {
			return ""
		}
		return "topic is for the two sides of the topic, publisher and subscriber"
	case to == "" && (fromStage || from == "internal/shards" || from == "internal/money" || from == "internal/payment" || !strings.HasPrefix(from, "internal/")):
		return ""
	case from == "internal/shards":
		if to == "lua" {
			return ""
		}
		return "internal/shards imports lua and the root package only"
	case from == "." || strings.HasPrefix(from, "internal/") && !fromStage:
		return from + " imports nothing of this repository"
	case from == "settlement" && to == "internal/ledger":
		return "" // the public face of the ledger
	case fromStage && toStage:
		return "stages do not import each other"
	case fromStage && redisSide(to):
		if stages[from] {
			return ""
		}
		return from + " does not know Redis' scripts"
	case toStage || to == "configs":
		return "the arrow points the other way: cmd -> configs -> stages -> internal/shards -> lua -> root"
	}
	return "no law knows this import: say in test/law_test.go where it belongs"
}

// redisSide tells whether a package names Redis' keys or runs its scripts.
func redisSide(folder string) bool { return folder == "lua" || folder == "internal/shards" }

// known tells whether the law has a place for a folder with Go files.
func known(from string) bool {
	_, stage := stages[from]
	return stage || anything(from) || slices.Contains([]string{".", "lua", "topic", "internal/flatjson", "internal/group", "internal/money", "internal/payment", "internal/shards", "internal/shards/shardstest", "internal/testkit"}, from)
}

// sources calls fn with every file of the repository whose name ends with one of the suffixes; path uses slashes.
func sources(t *testing.T, suffixes []string, fn func(path string)) {
	t.Helper()
	found := 0
	require.NoError(t, filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != ".." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata"):
			return filepath.SkipDir
		case !d.IsDir() && slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(p, s) }):
			found++
			fn(strings.TrimPrefix(filepath.ToSlash(p), "../"))
		}
		return nil
	}))
	require.Positive(t, found, "no file ends with %v: the law looks at nothing", suffixes)
}

func TestImportLaw(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	sources(t, []string{".go"}, func(file string) {
		from := path.Dir(file)
		seen[from] = true
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range f.Imports {
			to, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			if why := broken(from, to, strings.HasSuffix(file, "_test.go")); why != "" {
				t.Errorf("broken arrow: %s -> %s: %s", file, strings.TrimPrefix(to, module+"/"), why)
			}
		}
	})
	for _, from := range slices.Sorted(maps.Keys(seen)) {
		if !known(from) {
			t.Errorf("folder %s has no place in the import law: say in test/law_test.go what it may import", from)
		}
	}
	for name := range stages {
		require.True(t, seen[name], "stage %s of the law is not there", name)
	}
}

// The law can fail: each of these arrows is forbidden.
func TestImportLawForbids(t *testing.T) {
	t.Parallel()
	for _, a := range []struct {
		from, to string
		test     bool
		why      string
	}{
		{".", "go.uber.org/zap", false, "standard library only"},
		{".", module + "/lua", false, "imports nothing"},
		{"lua", module + "/consumer", false, "other way"},
		{"lua", module + "/configs", false, "other way"},
		{"lua", module + "/campaign", false, "other way"},
		{"consumer", module + "/internal/ledger", false, "each other"},
		{"consumer", module + "/settlement", false, "each other"},
		{"settlement", module + "/campaign", false, "each other"},
		{"internal/audit", module + "/internal/ledger", true, "each other"},
		{"internal/ledger", module + "/lua", false, "does not know Redis"},
		{"publisher", module + "/lua", false, "does not know Redis"},
		{"producer", module + "/configs", false, "other way"},
		{"producer", module + "/internal/testkit", false, "for tests"},
		{"cmd/hongbao", module + "/internal/testkit", false, "for tests"},
		{"consumer", module + "/internal/group", false, "cmd runs"},
		{"internal/group", module, false, "imports nothing"},
		{"internal/testkit", module + "/lua", false, "imports nothing"},
		{"internal/audit", module + "/cmd/hongbao", false, "nobody imports cmd"},
		{"configs", module + "/test/soak", true, "nobody imports test"},
		{"internal/ledger", "github.com/redis/go-redis/v9", false, "only internal/shards"},
		{"internal/shards", module + "/campaign", false, "imports lua"},
		{"internal/ledger", module + "/internal/shards", false, "does not know Redis"},
		{"consumer", "database/sql", false, "only internal/ledger"},
		{"consumer", "github.com/segmentio/kafka-go/protocol", false, "only publisher"},
		{"dedup", module + "/newthing", false, "no law knows"},
		{"subscriber", module + "/publisher", false, "each other"},
		{"subscriber", module + "/lua", false, "does not know Redis"},
		{"consumer", module + "/topic", false, "two sides"},
		{"topic", module + "/publisher", false, "other way"},
		{"publisher", module + "/examples/frontend", true, "nobody imports examples"},
		{"internal/remote", module + "/internal/ledger", false, "each other"},
		{"internal/httpapi", module + "/internal/ledger", false, "each other"},
		{"consumer", module + "/internal/flatjson", false, "come"},
		{"internal/ledger", "net/http", false, "only internal/httpapi"},
	} {
		require.Contains(t, broken(a.from, a.to, a.test), a.why, "%s -> %s", a.from, a.to)
	}
	for _, a := range [][2]string{
		{".", "time"}, {"lua", module}, {"consumer", module + "/lua"}, {"consumer", module + "/internal/shards"}, {"internal/shards", module + "/lua"}, {"cmd/hongbao", module + "/consumer"}, {"cmd/hongbao", module + "/configs"},
		{"publisher", module + "/topic"}, {"topic", module}, {"subscriber", "database/sql"}, {"examples/frontend", module + "/dedup"},
		{"configs", module + "/publisher"}, {"bench", module + "/internal/testkit"}, {"internal/ledger", "database/sql"}, {"settlement", module + "/internal/ledger"}, {"producer", "go.uber.org/zap"},
	} {
		require.Empty(t, broken(a[0], a[1], false), "%s -> %s", a[0], a[1])
	}
	require.False(t, known("util"))
}
