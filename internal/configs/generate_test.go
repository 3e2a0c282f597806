package configs

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/configuration.md and hongbao.yaml anew")

// The page and the example are what the table says; go generate writes them.
func TestGenerated(t *testing.T) {
	for path, text := range map[string]string{"../../docs/configuration.md": reference(),
		"../../configs/hongbao.yaml": example()} {
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		}
		have, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, text, string(have), "%s is not current: run go generate ./internal/configs", path)
	}
}

const referenceHead = `# Configuration

<!-- Written by go generate ./internal/configs from the table in internal/configs/knobs.go; do not edit. -->

Each knob has one name and can be set in three places. Later ones win:

1. the YAML file: ` + "`redis: {pool_size: 80}`" + `; ` + "`configs/hongbao.yaml`" + ` has every knob with its default, ` + "`configs/production.yaml`" + ` is a start for production;
2. the environment: ` + "`HONGBAO_REDIS_POOL_SIZE=80`" + `; a variable that is set to nothing counts as not set;
3. a flag: ` + "`--redis.pool_size=80`" + `.

Durations need a unit (500ms, 30s, 10m, 24h). Lists are written as YAML lists, or with commas; a flag for a list may be repeated.

A key of the file that does not exist is refused, and so is a variable HONGBAO_..., but for HONGBAO_CONFIG and those that Kubernetes makes of
services (HONGBAO_SERVICE_HOST and the like).

Secrets are refused in the file and on the command line, where others can read them. Set the variable, or set the variable with
` + "`_FILE`" + ` at its end (` + "`HONGBAO_REDIS_PASSWORD_FILE=/run/secrets/redis`" + `) to the path of a file that holds nothing else.
Such files, and the keys of certificates, belong to the process' user with mode 600 or less, or to root with mode 640 or less and a group of the
process. That is PostgreSQL's rule for ssl_key_file, and how Kubernetes mounts a secret with defaultMode 0440 and fsGroup.

Certificates and their keys are read again when their files change: the next handshake offers the new ones, and the log says so. A pair that
can't be used is an error in the log, and the one before goes on. The files of ..._ca, tokens and passwords are read once, at the start.

A process that finds anything wrong names all of it and ends with exit code 2.
`

func reference() string {
	var b strings.Builder
	b.WriteString(referenceHead)
	for _, s := range sections {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| knob | type | default | bounds | what |\n|---|---|---|---|---|\n", s.name, s.doc)
		for i := range knobs {
			if k := &knobs[i]; k.section() == s.name {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s%s |\n", k.name, k.kind(), code(k.def), bounds(k), k.doc, howSecret(k))
			}
		}
	}
	return b.String()
}

func howSecret(k *knob) string {
	if k.secret == public {
		return ""
	}
	return fmt.Sprintf(" `%s` or `%s`.", k.env(), k.env()+fileSuffix)
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func bounds(k *knob) string {
	switch {
	case k.choices != nil:
		return strings.Join(k.choices, ", ")
	case k.kind() == "duration":
		return span(k.low) + " to " + span(k.high)
	case k.kind() == "integer":
		return strings.TrimSpace(fmt.Sprintf("%d to %d %s", k.low, k.high, k.unit))
	}
	return ""
}

func example() string {
	var b strings.Builder
	b.WriteString("# Every knob of Hongbao with its default. Written by go generate ./internal/configs; " +
		"docs/configuration.md tells more.\n")
	for _, s := range sections {
		fmt.Fprintf(&b, "\n# %s\n%s:\n", s.doc, s.name)
		for i := range knobs {
			k := &knobs[i]
			if k.section() != s.name {
				continue
			}
			fmt.Fprintf(&b, "  # %s\n", k.doc)
			if s := bounds(k); s != "" {
				fmt.Fprintf(&b, "  # %s\n", s)
			}
			_, name, _ := strings.Cut(k.name, ".")
			if k.secret == alwaysSecret {
				fmt.Fprintf(&b, "  # %s: not here, but as %s or %s in the environment\n", name, k.env(), k.env()+fileSuffix)
				continue
			}
			if declared(k) {
				fmt.Fprintf(&b, "  # %s: declare it, there is no default\n", name)
				continue
			}
			fmt.Fprintf(&b, "  %s: %s\n", name, yamlValue(k))
		}
	}
	return b.String()
}

// declared tells whether a knob has no value until somebody declares one.
func declared(k *knob) bool {
	return k.def == "" && (k.kind() == "duration" || k.kind() == "bool")
}

func yamlValue(k *knob) string {
	switch {
	case k.kind() == "list" && !strings.Contains(k.def, ":"):
		return "[" + strings.ReplaceAll(k.def, ",", ", ") + "]"
	case k.kind() == "list":
		return `["` + strings.ReplaceAll(k.def, ",", `", "`) + `"]`
	case k.def == "":
		return `""`
	}
	return k.def
}
