package serve

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxUsers bounds the users, API keys or addresses that a generation of limiters remembers.
const maxUsers = 1_000_000

// limits bounds the requests of each user, API key or address. A limiter that was not used for as long as it takes to
// fill is as good as a new one, so it goes after one to two such periods.
type limits struct {
	rate   rate.Limit
	burst  int
	period time.Duration

	mu          sync.Mutex
	now, before map[string]*rate.Limiter
	turned      time.Time
}

func newLimits(perSecond, burst int) *limits {
	return &limits{
		rate: rate.Limit(perSecond), burst: burst, now: map[string]*rate.Limiter{},
		period: max(time.Second, time.Duration(burst)*time.Second/time.Duration(perSecond)),
	}
}

// take takes one request of the user; if he has made too many, it tells after how long he may make the next.
func (l *limits) take(user string, at time.Time) (wait time.Duration) {
	one := l.of(user, at)
	if one.AllowN(at, 1) {
		return 0
	}
	return max(1, time.Duration((1-one.TokensAt(at))/float64(l.rate)*float64(time.Second)))
}

// of gives the user's limiter.
func (l *limits) of(user string, at time.Time) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.Sub(l.turned) > l.period || len(l.now) >= maxUsers {
		l.before, l.now, l.turned = l.now, map[string]*rate.Limiter{}, at
	}
	one := l.now[user]
	if one == nil {
		if one = l.before[user]; one == nil {
			one = rate.NewLimiter(l.rate, l.burst)
		}
		l.now[user] = one
	}
	return one
}
