package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// input has the sources of one Load: a file's text, the environment, and the arguments of the command line.
type input struct {
	yaml string
	env  []string
	args []string
}

func (in *input) load(t testing.TB) (*Config, error) {
	t.Helper()
	path := ""
	if in.yaml != "" {
		path = write(t, "hongbao.yaml", in.yaml, 0o644)
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	require.NoError(t, flags.Parse(in.args))
	return Load(path, in.env, flags)
}

func (in *input) must(t testing.TB) *Config {
	t.Helper()
	c, err := in.load(t)
	require.NoError(t, err)
	return c
}

// problems returns the problems of an invalid configuration, without the folder of its file.
func (in *input) problems(t testing.TB) []string {
	t.Helper()
	c, err := in.load(t)
	require.Nil(t, c)
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Contains(t, err.Error(), fmt.Sprintf("problems: %d", len(e.Problems)))
	var out []string
	for _, p := range e.Problems {
		require.Contains(t, err.Error(), "\n  "+p.String())
		s := p.String()
		if i := strings.Index(s, "hongbao.yaml"); i > 0 && strings.HasPrefix(s, os.TempDir()) {
			s = s[i:]
		}
		out = append(out, s)
	}
	return out
}

func write(t testing.TB, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), mode))
	require.NoError(t, os.Chmod(path, mode)) // for any umask
	return path
}

func yamlOf(name, value string) string {
	section, key, _ := strings.Cut(name, ".")
	if webhook, key, ok := strings.Cut(key, "."); ok {
		return section + ": {" + webhook + ":\n  {" + key + ": " + value + "}}\n"
	}
	return section + ":\n  " + key + ": " + value + "\n"
}
