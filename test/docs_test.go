package test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/metrics"
	"github.com/hongbao-project/hongbao/internal/base/metrics/mixin"
	"github.com/hongbao-project/hongbao/internal/configs"
)

// Every log line for alerts in docs/operations.md occurs in the code. The Deployment on that page waits until the drain
// has ended.
func TestOperationsAreTrue(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	var code strings.Builder
	sources(t, []string{".go"}, func(file string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		text, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		code.Write(text)
	})
	rows := regexp.MustCompile("(?m)^\\| .*level `(error|warn)`.*$").FindAllString(string(page), -1)
	require.GreaterOrEqual(t, len(rows), 5)
	for _, row := range rows {
		alert, _, _ := strings.Cut(row[2:], "|")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(alert, -1) {
			said := strings.TrimPrefix(m[1], "... ")
			require.True(t, said == "error" || said == "warn" || strings.Contains(code.String(), said), "nothing logs %q", said)
		}
	}
	cfg, err := configs.Load("", nil, nil)
	require.NoError(t, err)
	grace := regexp.MustCompile(`terminationGracePeriodSeconds: (\d+)`).FindStringSubmatch(string(page))
	require.Len(t, grace, 2)
	seconds, err := strconv.Atoi(grace[1])
	require.NoError(t, err)
	require.Greater(t, time.Duration(seconds)*time.Second, cfg.Consumer.DrainTimeout+10*time.Second)
}

// Each alarm has a code, which docs/alarms.md lists in its table. Each code has a section with its meaning, a command
// to check, and the fix.
func TestAlarmsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/alarms.md")
	require.NoError(t, err)
	table, _, ok := strings.Cut(string(page), "\n## ")
	require.True(t, ok)
	var listed, documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| \\[`([a-z_]+)`\\]\\(#[a-z_]+\\) \\|").FindAllStringSubmatch(table, -1) {
		listed = append(listed, m[1])
	}
	runbook := regexp.MustCompile("(?s)^`([a-z_]+)`\n\n\\*\\*Means\\.\\*\\* .+?\n\n\\*\\*Check\\.\\*\\*.*?" +
		"\n    (?:hongbao|redis-cli) .+?\\*\\*Fix\\.\\*\\*.+")
	for _, text := range strings.Split(string(page), "\n## ")[1:] {
		m := runbook.FindStringSubmatch(text)
		require.Len(t, m, 2, "this runbook lacks Means, Check with a command, or Fix: %.40s", text)
		documented = append(documented, m[1])
	}
	require.ElementsMatch(t, documented, listed)
	a := alarms{codes: map[string]bool{}, consts: map[string]string{}}
	files := map[string]*ast.File{}
	sources(t, []string{".go"}, func(file string) {
		if !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(file, "bench/") && !strings.HasPrefix(file, "test/") {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", file), nil,
				parser.SkipObjectResolution|parser.ParseComments)
			require.NoError(t, err)
			files[file] = f
		}
	})
	for _, f := range files {
		ast.Inspect(f, a.declared)
	}
	for file, f := range files {
		ast.Inspect(f, func(n ast.Node) bool { return a.raised(t, file, n) })
	}
	delete(a.codes, "working")
	require.Positive(t, a.calls)
	for code := range a.codes {
		require.True(t, code == "refund_waits" || slices.Contains(metrics.Codes(), code), "metrics.Codes lacks %s", code)
	}
	for _, alert := range mixin.Alerts(mixin.Production()) {
		a.codes[alert.Code] = true
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(a.codes)), documented)
}

// alarms collects the alarm codes in the program's log calls.
type alarms struct {
	consts map[string]string // string constants by name
	codes  map[string]bool
	calls  int
}

// declared records a string constant. If the comment of its block begins with "The codes of a", the constant is a code.
func (a *alarms) declared(n ast.Node) bool {
	d, ok := n.(*ast.GenDecl)
	if !ok || d.Tok != token.CONST {
		return true
	}
	for _, s := range d.Specs {
		v, _ := s.(*ast.ValueSpec)
		for i, value := range v.Values {
			text, ok := literal(value)
			if !ok {
				continue
			}
			a.consts[v.Names[i].Name] = text
			if strings.HasPrefix(d.Doc.Text(), "The codes of a") {
				a.codes[text] = true
			}
		}
	}
	return true
}

// raised records the code of a log call. A log call with an alarm must have a code.
func (a *alarms) raised(t *testing.T, file string, n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return true
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 || f.Sel.Name != "Error" && f.Sel.Name != "Warn" {
		return true
	}
	said, _ := literal(call.Args[0])
	coded := false
	for _, arg := range call.Args {
		field, ok := arg.(*ast.CallExpr)
		if !ok || !isCall(field, "zap", "String") || len(field.Args) != 2 {
			continue
		}
		if name, _ := literal(field.Args[0]); name != "code" {
			continue
		}
		coded = true
		switch v := field.Args[1].(type) {
		case *ast.Ident:
			if text, ok := a.consts[v.Name]; ok {
				a.codes[text] = true
			}
		case *ast.SelectorExpr:
			if text, ok := a.consts[v.Sel.Name]; ok {
				a.codes[text] = true
			}
		default:
			text, ok := literal(v)
			require.True(t, ok, "%s: %s", file, said)
			a.codes[text] = true
		}
	}
	if strings.HasPrefix(said, "ALARM") || strings.HasPrefix(said, "INCIDENT") {
		require.True(t, coded, "%s: this alarm has no code: %s", file, said)
		a.calls++
	}
	return true
}

// literal returns the text of a string literal, or of the first part of a sum of literals.
func literal(e ast.Expr) (string, bool) {
	if sum, ok := e.(*ast.BinaryExpr); ok {
		return literal(sum.X)
	}
	l, ok := e.(*ast.BasicLit)
	if !ok || l.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(l.Value)
	return text, err == nil
}

// isCall reports whether a node is x.name(...).
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

// wrong maps forbidden phrases to better ones. The linter can't check phrases of two words.
var wrong = map[*regexp.Regexp]string{
	regexp.MustCompile(`(?i)\bfor ever\b`):    "permanently, or forever",
	regexp.MustCompile(`(?i)\banew\b`):        "again",
	regexp.MustCompile(`(?i)\bof one that\b`): "the thing's name",
	// What is refunded is what was left, and it is still counted as left.
	regexp.MustCompile(`granted \+ left \+|已发 \+ 剩余 \+`): "funded = granted + left",
}

// No source, script or page contains the phrases of wrong.
func TestWordsThatAreAlwaysWrong(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-z", "*.go", "*.lua", "*.md", "*.sql", "*.html", "*.yaml").Output()
	require.NoError(t, err)
	looked := 0
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		if strings.Contains(name, "testdata/") || name == "test/docs_test.go" {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", name))
		if errors.Is(err, fs.ErrNotExist) { // deleted, but still in git's index
			continue
		}
		require.NoError(t, err)
		looked++
		for i, line := range strings.Split(string(text), "\n") {
			for word, better := range wrong {
				if word.MatchString(line) {
					t.Errorf("%s:%d: %s: write %s", name, i+1, word.FindString(line), better)
				}
			}
		}
	}
	require.Greater(t, looked, 500)
}
