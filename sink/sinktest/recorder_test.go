package sinktest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// recorder is a test whose failures are expected.
type recorder struct {
	testing.TB
	mu      sync.Mutex
	text    strings.Builder
	failed  bool
	skipped bool
}

// record runs a case with a recorder.
func record(t testing.TB, c *testCase, s Subject) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() { // FailNow ends it
		defer close(ended)
		c.on(r, s)
	}()
	<-ended
	return r
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	fmt.Fprintf(&r.text, format+"\n", args...)
}

func (r *recorder) FailNow() {
	r.mu.Lock()
	r.failed = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) {
	r.Errorf("%s", fmt.Sprint(args...))
	r.FailNow()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	r.FailNow()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.mu.Lock()
	r.skipped = true
	fmt.Fprintf(&r.text, format+"\n", args...)
	r.mu.Unlock()
	runtime.Goexit()
}
