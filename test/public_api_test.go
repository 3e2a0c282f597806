package test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/public-api.txt again")

// docs/public-api.txt lists every public name, one per line, so that a review shows each new promise. After an intended
// change run: go test ./test -run TestPublicAPI -update
func TestPublicAPI(t *testing.T) {
	t.Parallel()
	var names []string
	for _, dir := range publicFolders(t) {
		names = append(names, publicNames(t, dir)...)
	}
	slices.Sort(names)
	got := "# The names that other modules can use, one a line: package, kind, name. TestPublicAPI writes this file.\n" +
		strings.Join(names, "\n") + "\n"
	const file = "../docs/public-api.txt"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, strings.Split(string(want), "\n"), strings.Split(got, "\n"),
		"run this test with -update, and explain in the commit why a promise is added or removed")
}

// publicFolders returns the folders of packages that other modules can import.
func publicFolders(t *testing.T) (dirs []string) {
	t.Helper()
	hidden := []string{"internal", "cmd", "test", "bench", "examples", "testdata", "docs", "scripts"}
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case path != ".." && (strings.HasPrefix(d.Name(), ".") || slices.Contains(hidden, d.Name())):
			return filepath.SkipDir
		}
		dirs = append(dirs, path)
		return nil
	}))
	return dirs
}

// publicNames returns the exported names of a folder's package: constants, variables, functions, types, and the methods
// of types.
func publicNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	pkg := strings.TrimPrefix(strings.TrimPrefix(filepath.ToSlash(dir), ".."), "/")
	if pkg == "" {
		pkg = "hongbao"
	}
	add := func(kind string, ids ...*ast.Ident) {
		for _, id := range ids {
			if id.IsExported() {
				names = append(names, pkg+" "+kind+" "+id.Name)
			}
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		tree, err := parser.ParseFile(token.NewFileSet(), file, bytes.NewReader(text), parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range tree.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if receiver := receiverOf(d); receiver == "" {
					add("func", d.Name)
				} else if ast.IsExported(receiver) {
					add("method "+receiver, d.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						add(d.Tok.String(), s.Names...)
					case *ast.TypeSpec:
						add("type", s.Name)
					}
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names) // two operating systems can declare the same name
}

// receiverOf returns the name of a method's type, and "" for a function.
func receiverOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	t := d.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if g, ok := t.(*ast.IndexExpr); ok {
		t = g.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
