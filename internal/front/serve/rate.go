package serve

import (
	"strings"
	"sync"
	"time"
)

// maxUsers bounds the users, API keys or addresses that a generation remembers.
const maxUsers = 1_000_000

// limits bounds the requests of each user, API key or address by the generic cell rate algorithm. Who makes none for as
// long as it takes to have his burst again is as good as new, so he is forgotten after one to two such periods.
type limits struct {
	every  time.Duration // a request may come
	spare  time.Duration // by which requests may come early: all but one of a burst
	period time.Duration

	mu sync.Mutex
	// now and before have for each user when he would have his whole burst again, counted from began.
	now, before map[string]time.Duration
	began       time.Time
	turned      time.Time
}

func newLimits(perSecond, burst int) *limits {
	every := time.Second / time.Duration(perSecond)
	return &limits{
		every: every, spare: time.Duration(burst-1) * every, period: max(time.Second, time.Duration(burst)*every),
		now: map[string]time.Duration{}, began: time.Now(),
	}
}

// take takes n requests of the user at once, or none: then it returns after how long they may make them. n is at most
// the burst.
func (l *limits) take(user string, n int, at time.Time) (wait time.Duration) {
	now := at.Sub(l.began)
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.Sub(l.turned) > l.period || len(l.now) >= maxUsers {
		l.before, l.now, l.turned = l.now, make(map[string]time.Duration, len(l.now)), at
	}
	whole, known := l.now[user]
	if !known {
		whole, known = l.before[user]
	}
	if !known || whole < now {
		whole = now
	}
	if wait = whole + time.Duration(n-1)*l.every - now - l.spare; wait > 0 {
		return wait
	}
	l.now[strings.Clone(user)] = whole + time.Duration(n)*l.every // user may be part of a token or a body, which a map would keep
	return 0
}
