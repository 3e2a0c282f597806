package testkit

import (
	"sync"
	"testing"
)

// Loss loses one request to a target, or only its answer. Its zero value loses none. It is safe for concurrent use.
type Loss struct {
	mu     sync.Mutex
	left   int  // requests up to the one that is lost; 0: none is lost
	answer bool // only its answer is lost
}

// Lose is the hook Lose of sinktest.Subject: it loses the request with index n among the next ones.
func (l *Loss) Lose(_ testing.TB, n int, answer bool) (happened func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left, l.answer = n+1, answer
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		was := l.left == 0
		l.left = 0
		return was
	}
}

// Step reports whether the next request is lost, or its answer.
func (l *Loss) Step() (request, answer bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lost := l.left == 1
	l.left = max(0, l.left-1)
	return lost && !l.answer, lost && l.answer
}
