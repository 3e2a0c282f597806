package serve

import (
	"strings"
	"sync"
	"time"
)

// maxUsers is the maximum number of users, API keys or addresses in each of the two maps.
const maxUsers = 1_000_000

// limits limits the request rate of each user, API key or address with the generic cell rate algorithm. A user who
// sends nothing for one period has the whole burst again. So limits can forget such a user after one to two
// periods.
type limits struct {
	every  time.Duration // the interval between requests
	spare  time.Duration // how much earlier a request may come: the length of a burst minus one interval
	period time.Duration

	mu sync.Mutex
	// now and before map each user to the time at which the full burst is available again. Times are relative to
	// began.
	now, before map[string]time.Duration
	began       time.Time
	rotated     time.Time
}

func newLimits(perSecond, burst int) *limits {
	every := time.Second / time.Duration(perSecond)
	return &limits{
		every: every, spare: time.Duration(burst-1) * every, period: max(time.Second, time.Duration(burst)*every),
		now: map[string]time.Duration{}, began: time.Now(),
	}
}

// giveBack undoes the count of n requests that take has counted.
func (l *limits) giveBack(user string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range []map[string]time.Duration{l.now, l.before} {
		if whole, known := m[user]; known {
			m[user] = whole - time.Duration(n)*l.every
			return
		}
	}
}

// take counts n requests of the user, if the rate permits all of them. Otherwise it counts none and returns how long
// the user must wait. n must not exceed the burst.
func (l *limits) take(user string, n int, at time.Time) (wait time.Duration) {
	now := at.Sub(l.began)
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.Sub(l.rotated) > l.period || len(l.now) >= maxUsers {
		l.before, l.now, l.rotated = l.now, make(map[string]time.Duration, len(l.now)), at
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
	l.now[strings.Clone(user)] = whole + time.Duration(n)*l.every // clone: user may be a substring of a token or body
	return 0
}
