package serve

import (
	"sync"
	"time"
)

// maxUsers bounds the users, API keys or addresses that a generation of limits remembers.
const maxUsers = 1_000_000

// limits bounds the requests of each user, API key or address. Each request takes up a share of time, and a user may be
// a burst ahead of the clock (GCRA, which lets the same requests through as a token bucket). Who is not ahead any more
// is as good as a new one, so he goes after one to two periods.
type limits struct {
	share, burst time.Duration // of one request; of as many as may come at once
	period       time.Duration

	mu          sync.Mutex
	now, before map[string]int64 // up to when each user's requests take up the time, in Unix ns
	turned      time.Time
}

func newLimits(perSecond, burst int) *limits {
	share := time.Second / time.Duration(perSecond)
	all := share * time.Duration(burst)
	return &limits{share: share, burst: all, period: max(time.Second, all), now: map[string]int64{}}
}

// take takes one request of the user; if he has made too many, it tells after how long he may make the next.
func (l *limits) take(user string, at time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.Sub(l.turned) > l.period || len(l.now) >= maxUsers {
		l.before, l.now, l.turned = l.now, map[string]int64{}, at
	}
	until, ok := l.now[user]
	if !ok {
		until = l.before[user]
	}
	now := at.UnixNano()
	until = max(until, now) + int64(l.share)
	if wait = time.Duration(until-now) - l.burst; wait > 0 {
		return wait
	}
	l.now[user] = until
	return 0
}
