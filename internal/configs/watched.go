package configs

import (
	"os"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
)

// watched is a value that is read from files. Each use checks whether the files have changed, and if so reads them
// again. If they can't be read, that is logged once, and the previous value stays valid.
type watched[T any] struct {
	files []string
	read  func() (*T, error)
	log   atomic.Pointer[zap.Logger]

	mu    sync.Mutex
	seen  []os.FileInfo // the state of the files at the last reading; nil for a file that can't be seen
	valid *T
}

// logSetter is a watched value that logs changes.
type logSetter interface{ setLog(log *zap.Logger) }

// watch reads the files for the first time. If that fails, the value is nil until the files change.
func watch[T any](read func() (*T, error), files ...string) (*watched[T], error) {
	w := &watched[T]{files: files, read: read}
	w.setLog(zap.NewNop())
	w.seen = w.look()
	var err error
	w.valid, err = read()
	return w, err
}

func (w *watched[T]) setLog(log *zap.Logger) { w.log.Store(log) }

func (w *watched[T]) look() []os.FileInfo {
	now := make([]os.FileInfo, len(w.files))
	for i, path := range w.files {
		if info, err := os.Stat(path); err == nil {
			now[i] = info
		}
	}
	return now
}

// current returns the value, and first reads the files again if they have changed.
func (w *watched[T]) current() *T {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.look()
	if sameFiles(now, w.seen) {
		return w.valid
	}
	w.seen = now
	log := w.log.Load().With(zap.Strings("files", w.files))
	valid, err := w.read()
	if err != nil {
		log.Error("a certificate or its key has changed, and can't be used; the earlier ones stay in use until the files "+
			"are right", zap.String("code", "certificate_unread"), zap.Error(err))
		return w.valid
	}
	log.Info("a certificate or its key has changed, and was read again")
	w.valid = valid
	return valid
}

// sameFiles reports whether the files are unchanged. It also detects that a path leads to another file, because
// Kubernetes replaces a symbolic link.
func sameFiles(now, before []os.FileInfo) bool {
	for i, a := range now {
		b := before[i]
		if a == nil || b == nil {
			if a != b {
				return false
			}
			continue
		}
		if !os.SameFile(a, b) || !a.ModTime().Equal(b.ModTime()) || a.Size() != b.Size() {
			return false
		}
	}
	return true
}
