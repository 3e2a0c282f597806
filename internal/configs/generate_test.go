package configs

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/configuration.md and hongbao.yaml again")

// docs/configuration.md, hongbao.yaml and docs.txt match the comments of the fields. The command go generate writes the
// three files.
func TestGenerated(t *testing.T) {
	comments := readComments(t)
	var lines strings.Builder
	for i := range knobs {
		k := &knobs[i]
		k.doc = comments(k)
		fmt.Fprintln(&lines, k.Name, k.doc)
	}
	for path, text := range map[string]string{"docs.txt": lines.String(), "../../docs/configuration.md": reference(),
		"../../configs/hongbao.yaml": example()} {
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
		have, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(have), "%s is not current: run go generate ./internal/configs", path)
	}
}

// readComments returns the first paragraph of the comment of a knob's field.
func readComments(t *testing.T) func(*entry) string {
	packages := map[string][]*ast.File{}
	return func(k *entry) string {
		path := strings.TrimPrefix(k.Owner.PkgPath(), "github.com/hongbao-project/hongbao/")
		if packages[path] == nil {
			names, err := filepath.Glob("../../" + path + "/*.go")
			require.NoError(t, err)
			for _, name := range names {
				file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
				require.NoError(t, err)
				packages[path] = append(packages[path], file)
			}
		}
		doc := ""
		find := func(n ast.Node) bool {
			if s, ok := n.(*ast.TypeSpec); ok && s.Name.Name == k.Owner.Name() {
				for _, f := range s.Type.(*ast.StructType).Fields.List {
					if len(f.Names) == 1 && f.Names[0].Name == k.Field {
						doc, _, _ = strings.Cut(f.Doc.Text(), "\n\n")
					}
				}
			}
			return true
		}
		for _, file := range packages[path] {
			ast.Inspect(file, find)
		}
		return strings.Join(strings.Fields(doc), " ")
	}
}

const referenceHead = `# Configuration

<!-- Written by go generate ./internal/configs from the fields of the Configs; do not edit. -->

Each knob has one name and can be set in three places. A later place in this list overrides an earlier one:

1. the YAML file: ` + "`redis: {pool_size: 80}`" + `; ` + "`configs/hongbao.yaml`" + ` has every knob with its default, ` + "`configs/production.yaml`" + ` is a starting point for production;
2. the environment: ` + "`HONGBAO_REDIS_POOL_SIZE=80`" + `; an empty variable counts as not set;
3. a flag: ` + "`--redis.pool_size=80`" + `.

Durations need a unit (500ms, 30s, 10m, 24h). Lists are written as YAML lists, or with commas; a flag for a list may be repeated.

A process refuses an unknown key in the file. It also refuses an unknown variable HONGBAO_..., except for HONGBAO_CONFIG and the variables
that Kubernetes sets for services (such as HONGBAO_SERVICE_HOST).

A process refuses secrets in the file and on the command line, where others can read them. Set the variable, or set the variable with
` + "`_FILE`" + ` at its end (` + "`HONGBAO_REDIS_PASSWORD_FILE=/run/secrets/redis`" + `) to the path of a file that contains nothing else.
Files of secrets, and the keys of certificates, must belong to the process' user with mode 600 or less, or to root with mode 640 or less and a
group of the process. PostgreSQL has the same rule for ssl_key_file. Kubernetes mounts a secret this way with defaultMode 0440 and fsGroup.

A process reads certificates, their keys and the files of authorities (..._ca) again when they change. The next handshake uses them, and the log says so.
If a new file can't be used, the log has an error, and the earlier one stays in use. A process reads tokens and passwords once, at its start.
Exception: each login to Kafka reads kafka.sasl_token_file.

A process that finds errors in its configuration prints all of them and ends with exit code 2.

Each section begins with the knobs that most operators set. The advanced knobs below them have defaults that fit nearly everyone.
`

func reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", s.name, s.doc)
		before := ""
		for _, k := range of(s.name) {
			if now := rank(&k); now != before {
				before = now
				fmt.Fprintf(&b, "\n| %s | type | default | bounds | what |\n|---|---|---|---|---|\n", now)
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s%s |\n", k.Name, k.Kind(), code(k.Default), bounds(&k), k.doc,
				howSecret(&k))
		}
	}
	return b.String()
}

func of(section string) (all []entry) {
	for _, k := range knobs {
		if k.Section() == section {
			all = append(all, k)
		}
	}
	return all
}

func rank(k *entry) string {
	if k.Common {
		return "knob"
	}
	return "advanced knob"
}

func howSecret(k *entry) string {
	if k.Secret == "" {
		return ""
	}
	return fmt.Sprintf(" `%s` or `%s`.", k.Env(), k.Env()+fileSuffix)
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func bounds(k *entry) string {
	switch {
	case k.Choices != nil:
		return strings.Join(k.Choices, ", ")
	case k.High != 0:
		return strings.TrimSpace(k.Bounds() + " " + k.Unit)
	}
	return ""
}

func example() string {
	var b strings.Builder
	b.WriteString("# Every knob of Hongbao with its default. Written by go generate ./internal/configs; " +
		"see docs/configuration.md.\n")
	for _, s := range sections {
		fmt.Fprintf(&b, "\n# %s\n%s:\n", s.doc, s.name)
		before := "knob"
		for _, k := range of(s.name) {
			if now := rank(&k); now != before {
				before = now
				fmt.Fprintf(&b, "\n  # Advanced.\n\n")
			}
			fmt.Fprintf(&b, "  # %s\n", k.doc)
			if s := bounds(&k); s != "" {
				fmt.Fprintf(&b, "  # %s\n", s)
			}
			_, name, _ := strings.Cut(k.Name, ".")
			if k.sink != "" {
				sink := starredSamples[k.Section()]
				name = strings.Replace(name, star, sink, 1)
				k = *k.named(sink)
			}
			switch {
			case k.Secret != "always" && k.sink != "":
				fmt.Fprintf(&b, "  # %s: %s\n", name, yamlValue(&k))
			case k.Secret == "always":
				fmt.Fprintf(&b, "  # %s: not here, but as %s or %s in the environment\n", name, k.Env(), k.Env()+fileSuffix)
			case declared(&k):
				fmt.Fprintf(&b, "  # %s: declare it, there is no default\n", name)
			default:
				fmt.Fprintf(&b, "  %s: %s\n", name, yamlValue(&k))
			}
		}
	}
	return b.String()
}

// declared reports whether a knob has no default, so that the user must declare a value.
func declared(k *entry) bool {
	return k.Default == "" && (k.Kind() == "duration" || k.Kind() == "bool")
}

func yamlValue(k *entry) string {
	switch {
	case k.Kind() == "list" && !strings.Contains(k.Default, ":"):
		return "[" + strings.ReplaceAll(k.Default, ",", ", ") + "]"
	case k.Kind() == "list":
		return `["` + strings.ReplaceAll(k.Default, ",", `", "`) + `"]`
	case k.Default == "":
		return `""`
	}
	return k.Default
}
