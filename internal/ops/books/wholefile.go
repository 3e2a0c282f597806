package books

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"github.com/hongbao-project/hongbao/internal/app"
)

// wholeFile is a temporary file that gets its name only after all of its content is on the disk. Only its owner may
// read it.
type wholeFile struct {
	io.Writer
	dir  string
	file *os.File
	sum  hash.Hash
}

func newWholeFile(dir string) (*wholeFile, error) {
	f, err := os.CreateTemp(dir, ".hongbao-")
	if err != nil {
		return nil, app.Usage("%w: name an existing folder that this process may write to", err)
	}
	w := &wholeFile{dir: dir, file: f, sum: sha256.New()}
	w.Writer = io.MultiWriter(w.file, w.sum)
	return w, nil
}

// checkDir returns an error if no file can be created in the folder.
func checkDir(dir string) error {
	w, err := newWholeFile(dir)
	if err == nil {
		err = w.drop()
	}
	return err
}

// keep renames the file to its name, replacing any file with that name. It returns the SHA-256 of the content.
func (w *wholeFile) keep(name string) (string, error) {
	err := w.file.Sync()
	if err == nil {
		err = os.Rename(w.file.Name(), filepath.Join(w.dir, name))
	}
	if err == nil {
		err = syncDir(w.dir)
	}
	if err != nil {
		return "", fmt.Errorf("write %s: %w", filepath.Join(w.dir, name), err)
	}
	return hex.EncodeToString(w.sum.Sum(nil)), nil
}

// syncDir flushes the names in a folder to the disk.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// drop closes the file. It removes the file unless keep has renamed it.
func (w *wholeFile) drop() error {
	err := w.file.Close()
	if gone := os.Remove(w.file.Name()); !errors.Is(gone, os.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}
