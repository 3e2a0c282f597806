package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// released has the fields of .goreleaser.yaml that the tests check. `make release-check` validates the file with
// goreleaser.
type released struct {
	Before struct{ Hooks []string }
	Builds []struct {
		Main                              string
		Env, Flags, Tags, Ldflags, Goarch []string
		ModTimestamp                      string `json:"mod_timestamp"`
	}
	Archives []struct {
		BuildsInfo info `json:"builds_info"`
		Files      []struct {
			Src  string
			Info info
		}
	}
}

type info struct{ Owner, Group, MTime string }

// A release uses the build flags of the image. Its files are reproducible on any machine. Each file that it packs
// exists after goreleaser has run its hooks.
func TestRelease(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../.goreleaser.yaml")
	require.NoError(t, err)
	var r released
	require.NoError(t, yaml.Unmarshal(text, &r))
	require.Len(t, r.Builds, 1)
	image, err := os.ReadFile("../image/main.go")
	require.NoError(t, err)
	b := r.Builds[0]
	for _, word := range []string{strings.Join(b.Env, " "), strings.Join(b.Flags, " "),
		"-tags=" + strings.Join(append(b.Tags, "production"), ","), // only a release has dev and demo
		"-ldflags=" + strings.Join(b.Ldflags, " "), b.Main} {
		require.Contains(t, string(image), `"`+word+`"`, "the image has other build flags")
	}
	require.Equal(t, "{{ .CommitTimestamp }}", b.ModTimestamp)
	require.Equal(t, []string{"amd64", "arm64"}, b.Goarch)

	require.Equal(t, []string{"make release-files"}, r.Before.Hooks)
	made, err := exec.CommandContext(t.Context(), "make", "-C", "../..", "release-files").CombinedOutput()
	require.NoError(t, err, "%s", made)
	require.Len(t, r.Archives, 1)
	reproducible := info{"root", "root", "{{ .CommitDate }}"}
	require.Equal(t, reproducible, r.Archives[0].BuildsInfo)
	for _, file := range r.Archives[0].Files {
		require.Equal(t, reproducible, file.Info, file.Src)
		found, err := filepath.Glob(filepath.Join("../..", file.Src))
		require.NoError(t, err)
		require.NotEmpty(t, found, file.Src)
	}
	script := "../../bin/release/completions/hongbao.bash"
	out, err := exec.CommandContext(t.Context(), "bash", "-n", script).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// docs/release.md names the goreleaser version of the Makefile, and the version of the chart.
func TestReleasePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/release.md")
	require.NoError(t, err)
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	version := regexp.MustCompile(`GORELEASER_VERSION := (\S+)`).FindStringSubmatch(string(makefile))
	require.NotNil(t, version)
	require.Contains(t, string(page), "bin/goreleaser-"+version[1]+" release")
	chart, err := os.ReadFile("../chart/Chart.yaml")
	require.NoError(t, err)
	app := regexp.MustCompile(`(?m)^appVersion: "(.*)"$`).FindStringSubmatch(string(chart))
	require.NotNil(t, app)
	require.Contains(t, string(page), "hongbao:"+app[1])
	require.Contains(t, string(chart), "\nversion: "+app[1]+"\n")
}
