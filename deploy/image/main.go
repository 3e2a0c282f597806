// Command image writes Hongbao's container image as an OCI layout, without a container engine and without a registry:
//
//	make image                       # bin/image, for this machine's architecture; ARCH=amd64,arm64 for both
//	skopeo copy --all oci:bin/image docker://registry.internal/hongbao:1
//
// The image equals that of deploy/Dockerfile: it contains only the static program and the certificates of public
// authorities.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The paths of the image's two files, the variable by which `kubectl exec` finds the program, and the user that runs it.
const (
	searchPath   = "PATH=/usr/local/bin"
	program      = "usr/local/bin/hongbao"
	certificates = "etc/ssl/certs/ca-certificates.crt"
	user         = "65532:65532"
)

func main() {
	source := flag.String("source", "..", "the repository")
	out := flag.String("out", "../bin/image", "folder of the OCI layout; its content is replaced")
	arch := flag.String("arch", runtime.GOARCH, "architectures, such as amd64,arm64")
	roots := flag.String("roots", "/"+certificates, "file with the certificates of public authorities")
	flag.Parse()
	digest, err := write(*source, *out, *roots, strings.Split(*arch, ","))
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Println(digest)
}

// write builds the program for each architecture and writes the layout. It returns the digest of the index of all
// images.
func write(source, out, roots string, archs []string) (string, error) {
	images, err := buildAll(source, roots, archs)
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(out); err != nil {
		return "", err
	}
	path, err := layout.Write(out, empty.Index)
	if err != nil {
		return "", fmt.Errorf("write the layout to %s: %w", out, err)
	}
	if err := path.AppendIndex(images); err != nil {
		return "", fmt.Errorf("write the images to %s: %w", out, err)
	}
	digest, err := images.Digest()
	return digest.String(), err
}

// buildAll builds an image for each architecture, and returns the index of the images.
func buildAll(source, roots string, archs []string) (index v1.ImageIndex, err error) {
	dir, err := os.MkdirTemp("", "hongbao-image-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	index = mutate.IndexMediaType(empty.Index, "application/vnd.oci.image.index.v1+json")
	for _, arch := range archs {
		img, err := build(source, filepath.Join(dir, arch), arch, roots)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	return index, nil
}

// build compiles the program with the same flags as deploy/Dockerfile, and puts it into an image.
func build(source, path, arch, roots string) (v1.Image, error) {
	cmd := exec.Command("go", "build", "-trimpath", "-tags=timetzdata,production", "-ldflags=-s -w", "-o", path, "./cmd/hongbao")
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the program in %s: %w: %s", source, err, text)
	}
	img := mutate.MediaType(empty.Image, "application/vnd.oci.image.manifest.v1+json")
	img = mutate.ConfigMediaType(img, "application/vnd.oci.image.config.v1+json")
	for _, file := range []struct {
		name, path string
		mode       int64
	}{{certificates, roots, 0o444}, {program, path, 0o555}} {
		text, err := os.ReadFile(file.path)
		if err != nil {
			return nil, fmt.Errorf("read the source of /%s: %w", file.name, err)
		}
		layer, err := pack(file.name, text, file.mode)
		if err == nil {
			img, err = mutate.AppendLayers(img, layer)
		}
		if err != nil {
			return nil, fmt.Errorf("pack /%s: %w", file.name, err)
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config.User, config.Config.Entrypoint = user, []string{"/" + program}
	config.Config.Env = []string{searchPath}
	return mutate.ConfigFile(img, config)
}

// pack returns a layer with one file and its parent folders. It stores no time, so the same program gives the same
// digest.
func pack(name string, text []byte, mode int64) (v1.Layer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	parts := strings.Split(name, "/")
	for i := 1; i < len(parts); i++ {
		folder := &tar.Header{Typeflag: tar.TypeDir, Name: strings.Join(parts[:i], "/") + "/", Mode: 0o755}
		if err := w.WriteHeader(folder); err != nil {
			return nil, err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(text))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil },
		tarball.WithMediaType("application/vnd.oci.image.layer.v1.tar+gzip"))
}
