package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testSins names what a test file must not do: sleep, and skip for any reason but -short. Benchmarks run when asked for
// only, so these may skip, and a property of rapid may skip a draw.
func testSins(name string, src any) ([]string, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var sins []string
	fine := map[ast.Node]bool{} // what stands in `if testing.Short() {`, or in a property of rapid
	ast.Inspect(f, func(n ast.Node) bool {
		if i, ok := n.(*ast.IfStmt); ok && isCall(i.Cond, "testing", "Short") {
			ast.Inspect(i.Body, func(n ast.Node) bool { fine[n] = true; return true })
		}
		if l, ok := n.(*ast.FuncLit); ok && isProperty(l.Type) {
			ast.Inspect(l.Body, func(n ast.Node) bool { fine[n] = true; return true })
		}
		if d, ok := n.(*ast.FuncDecl); ok && isProperty(d.Type) {
			ast.Inspect(d.Body, func(n ast.Node) bool { fine[n] = true; return true })
		}
		if isCall(n, "time", "Sleep") {
			sins = append(sins, fset.Position(n.Pos()).String()+": time.Sleep in a test: wait for a condition with a deadline, or use testing/synctest")
		}
		for _, skip := range []string{"Skip", "Skipf", "SkipNow"} {
			if !fine[n] && (isCall(n, "t", skip) || isCall(n, "tb", skip)) {
				sins = append(sins, fset.Position(n.Pos()).String()+": a skip that is not under testing.Short(): what is missing must fail loudly")
			}
		}
		return true
	})
	return sins, nil
}

// isProperty tells whether a function takes a *rapid.T.
func isProperty(f *ast.FuncType) bool {
	for _, p := range f.Params.List {
		star, ok := p.Type.(*ast.StarExpr)
		if !ok {
			continue
		}
		sel, ok := star.X.(*ast.SelectorExpr)
		if !ok {
			continue
		}
		if id, ok := sel.X.(*ast.Ident); ok && id.Name == "rapid" && sel.Sel.Name == "T" {
			return true
		}
	}
	return false
}

// isCall tells whether a node is x.name(...).
func isCall(n ast.Node, x, name string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && id.Name == x
}

func TestNoSleepNoSkip(t *testing.T) {
	t.Parallel()
	sources(t, []string{"_test.go"}, func(file string) {
		sins, err := testSins(filepath.Join("..", file), nil)
		require.NoError(t, err)
		for _, s := range sins {
			t.Error(s)
		}
	})
}

func TestNoSleepNoSkipCanFail(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]int{
		`time.Sleep(1)`:                           1,
		`t.Skip("no redis")`:                      1,
		`if x { t.Skipf("") }`:                    1,
		`if testing.Short() { t.Skip("needs") }`:  0,
		`if testing.Short() { time.Sleep(1) }`:    1,
		`if !testing.Short() { t.SkipNow() }`:     1,
		`time.AfterFunc(1, f); other.Sleep(1)`:    0,
		`c(func(t *rapid.T) { t.Skip("") })`:      0,
		`c(func(t *testing.T) { t.Skip("") })`:    1,
		`go func() { time.Sleep(1); t.Skip() }()`: 2,
	} {
		sins, err := testSins("x_test.go", "package x\nfunc f() {"+src+"}")
		require.NoError(t, err)
		require.Len(t, sins, want, src)
	}
}

// headSins names what the head of a script lacks. A script without commands is a library that others include.
func headSins(name, src string) []string {
	var head strings.Builder
	for line := range strings.Lines(src) {
		if !strings.HasPrefix(line, "--") {
			break
		}
		head.WriteString(line)
	}
	var sins []string
	if !strings.HasPrefix(src, "-- "+name+": ") {
		sins = append(sins, `want "-- `+name+`: <purpose>" as its first line`)
	}
	want := []string{"KEYS", "ARGV", "Reply", "Cost", "First write", "Repeat"}
	if name == "bits" || name == "fields" || name == "guard" || name == "stub" { // put in front of other scripts
		want = nil
	}
	for _, field := range want {
		if !regexp.MustCompile(`(?m)^-- ` + field + `\s+\S`).MatchString(head.String()) {
			sins = append(sins, "its head does not tell: "+field)
		}
	}
	return sins
}

func TestScriptHeads(t *testing.T) {
	t.Parallel()
	sources(t, []string{".lua"}, func(file string) {
		src, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		for _, s := range headSins(strings.TrimSuffix(filepath.Base(file), ".lua"), string(src)) {
			t.Errorf("%s: %s", file, s)
		}
	})
	require.Len(t, headSins("x", "-- y: does\nreturn 1\n-- KEYS 1 too late\n"), 7)
	require.Empty(t, headSins("x", "-- x: does\n-- KEYS  1 a\n-- ARGV  none\n-- Reply 1\n-- Cost  O(1)\n-- First write HSET\n-- Repeat the same\n"))
}

// unfinished finds words that mark unfinished work.
var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)

func TestNothingUnfinished(t *testing.T) {
	t.Parallel()
	sources(t, []string{".go", ".lua", ".sh", ".sql", ".yaml", "Makefile"}, func(file string) {
		src, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		if at := unfinished.FindIndex(src); at != nil {
			t.Errorf("%s:%d: %s: finish it or open an issue", file, 1+strings.Count(string(src[:at[0]]), "\n"), src[at[0]:at[1]])
		}
	})
	require.True(t, unfinished.MatchString("// TO"+"DO: later"))
	require.False(t, unfinished.MatchString("todos"))
}
