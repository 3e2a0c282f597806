package test

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// unpacked builds the image and extracts it. It returns the folder and the configuration.
func unpacked(t *testing.T) (root string, config v1.Config) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image")
	cmd := exec.CommandContext(t.Context(), "go", "run", "./image", "-out", out)
	cmd.Dir = ".."
	var says bytes.Buffer
	cmd.Stderr = &says
	digest, err := cmd.Output()
	require.NoError(t, err, "%s", &says)

	path, err := layout.FromPath(out)
	require.NoError(t, err)
	top, err := path.ImageIndex()
	require.NoError(t, err)
	images, err := top.IndexManifest()
	require.NoError(t, err)
	require.Len(t, images.Manifests, 1, "skopeo wants one")
	require.Equal(t, strings.TrimSpace(string(digest)), images.Manifests[0].Digest.String())
	index, err := top.ImageIndex(images.Manifests[0].Digest)
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	require.Equal(t, &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, manifest.Manifests[0].Platform)
	img, err := index.Image(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	file, err := img.ConfigFile()
	require.NoError(t, err)
	root = t.TempDir()
	files := mutate.Extract(img)
	defer files.Close()
	unpack(t, root, files)
	return root, file.Config
}

func unpack(t *testing.T, root string, files io.Reader) {
	t.Helper()
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
		path := filepath.Join(root, filepath.Clean("/"+h.Name))
		if h.Typeflag == tar.TypeDir {
			require.NoError(t, os.MkdirAll(path, h.FileInfo().Mode()))
			continue
		}
		require.Equal(t, byte(tar.TypeReg), h.Typeflag, h.Name)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, text, h.FileInfo().Mode()))
	}
}

// contained returns the arguments of unshare that run a command as a container engine would: in the image's read-only
// root, as the image's user, and without capabilities.
func contained(root string, args ...string) []string {
	// The first namespace has the right to mount, and the second one maps the user. Neither needs root on the host.
	const script = `mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && root=$1 && shift && ` +
		`exec unshare --user --map-user=65532 --map-group=65532 --root="$root" "$@"`
	return append([]string{"--user", "--map-root-user", "--mount", "sh", "-euc", script, "sh", root}, args...)
}

// The image is built without a container engine or a registry. Its program runs as the image's user. The root file
// system has only two files and is read-only.
func TestImage(t *testing.T) {
	t.Parallel()
	root, config := unpacked(t)
	entrypoint := config.Entrypoint
	var files []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, root))
		}
		return err
	}))
	require.Equal(t, []string{"/etc/ssl/certs/ca-certificates.crt", "/usr/local/bin/hongbao"}, files)
	require.Equal(t, "65532:65532", config.User)
	require.Equal(t, []string{"/usr/local/bin/hongbao"}, entrypoint)
	require.Equal(t, []string{"PATH=/usr/local/bin"}, config.Env, "`kubectl exec` finds the program")
	roots, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	require.NoError(t, err)
	require.Greater(t, bytes.Count(roots, []byte("BEGIN CERTIFICATE")), 50)

	mounted := filepath.Join(root, "mnt") // stands for a mounted volume
	require.NoError(t, os.Mkdir(mounted, 0o755))
	for from, to := range map[string]string{keyFile(t): "keys.json", campaignFile(t, 10): "rain.yaml"} {
		text, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(mounted, to), text, 0o600))
	}
	inside := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "unshare", contained(root, append(entrypoint, args...)...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HONGBAO_LEDGER_DSN=/ledger.db"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := inside("version")
	require.NoError(t, err, out)
	require.Contains(t, out, "entries version")
	out, err = inside("demo")
	require.Error(t, err, "the image does not contain the command demo")
	require.Contains(t, out, "has no command \"demo\"")
	built, err := buildinfo.ReadFile(filepath.Join(root, "usr/local/bin/hongbao"))
	require.NoError(t, err)
	for _, dep := range built.Deps {
		require.NotContains(t, dep.Path, "miniredis")
		require.NotContains(t, dep.Path, "kfake")
	}
	out, err = inside("campaign", "plan", "/mnt/rain.yaml") // needs the time zones that are compiled in
	require.NoError(t, err, out)
	require.Contains(t, out, "10 packets")
	redis := testkit.NewRedis(t, testkit.RedisOptions{}).Addr
	out, err = inside("init", "--redis.addrs="+redis, "--deployment.sinks=balance")
	require.Error(t, err)
	require.Contains(t, out, "/ledger.db", "the image's root is read-only")
	run(t, []string{"HONGBAO_LEDGER_DSN=" + filepath.Join(t.TempDir(), "ledger.db")}, "init", "--redis.addrs="+redis,
		"--deployment.sinks=balance")

	s := &server{public: testkit.FreeAddr(t), ops: testkit.FreeAddr(t)}
	s.process = start(t, "unshare", nil, contained(root, append(entrypoint, "serve", "--serve.keys=/mnt/keys.json",
		"--serve.issuer=https://id.test", "--serve.audience=hongbao", "--serve.listen="+s.public, "--serve.ops_listen="+s.ops,
		"--redis.addrs="+redis, "--serve.drain_delay=0s")...)...)
	testkit.Eventually(t, timeToStart, func() bool { return ready(t.Context(), s.ops) }, "serve is ready in the container")
	s.stop(timeToStart)
}

// deploy/Dockerfile and command image have the same build flags, files, user and entrypoint.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../Dockerfile")
	require.NoError(t, err)
	source, err := os.ReadFile("../image/main.go")
	require.NoError(t, err)
	for _, word := range []string{"-trimpath", "-tags=timetzdata,production", "-s -w", "./cmd/hongbao", "CGO_ENABLED=0", "65532:65532",
		"PATH=/usr/local/bin", "usr/local/bin/hongbao", "etc/ssl/certs/ca-certificates.crt"} {
		require.Contains(t, string(text), word)
		require.Contains(t, string(source), word)
	}
	require.Contains(t, string(text), "\nFROM scratch\n")
	mod, err := os.ReadFile("../../go.mod")
	require.NoError(t, err)
	require.Contains(t, string(mod), "\ngo 1.26", "the Dockerfile builds with golang:1.26")
	require.Contains(t, string(text), "FROM golang:1.26-")
}
