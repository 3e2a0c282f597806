package remote

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
)

// Config says how to reach the remote and what it is able to do. Nothing has a default; zero is refused but where it
// says what it means.
type Config struct {
	// URL is where the API begins; "/v1/credits" is put behind it. http or https, no user, no query.
	URL string
	// Token goes into the Authorization header as a bearer token; empty for none. It is never logged.
	Token string
	// TLS for https; nil for the system's roots.
	TLS *tls.Config
	// Deployment is part of every key: it must never change.
	Deployment string

	// ConnectTimeout bounds one connect, and one TLS handshake. HeaderTimeout bounds the wait for the answer's head
	// after the request was written. Timeout bounds one request as a whole.
	ConnectTimeout, HeaderTimeout, Timeout time.Duration
	// IdleTimeout closes unused connections; below that of the remote.
	IdleTimeout time.Duration
	// BodyBytes bounds the body of an answer about one credit, and of each credit in the answer to a batch.
	BodyBytes int64
	// Concurrency bounds the requests under way at once, over all calls.
	Concurrency int
	// BatchCredits is how many credits one request to the batch endpoint carries; 0 if the remote has none. Only for
	// idempotent remotes.
	BatchCredits int

	// Retention is how long the remote surely remembers a key; 0 if it is not idempotent. Margin is taken off it, for
	// clocks.
	Retention, Margin time.Duration
	// Queryable tells that the remote answers questions by reference.
	Queryable bool
	// QueryFinal is how long after a request was sent it can still take effect; from then on "not found" is final. It
	// counts from the end of the sender's ClaimTime. 0: never, a person decides. At least ClaimTime.
	QueryFinal time.Duration

	// Replay says that the grants may have been settled before, at the time that they carry or later. The Handler
	// asks for each once more while the remote surely remembers its key since then. Later it only looks the credit
	// up. It never sends a new one.
	Replay bool
	// Verified is what a person has verified at the remote about grants whose outcome stays unknown; else empty.
	// Done: the remote has the credits as we ask for them, and nothing is sent; only for remotes that can't be asked.
	// NotSent: it did not have them at VerifiedAt, and no request was under way. Those are sent anew, unless their
	// last sender had time until after VerifiedAt.
	Verified   Verdict
	VerifiedAt time.Time

	// ClaimTime is how long only the worker that began a credit asks for it, and bounds what he does about it.
	ClaimTime time.Duration
	// Repeats is how often an unknown answer is resolved again inside one call; 0 for once only.
	Repeats int
	// Pause is the wait before the first repeat; it doubles.
	Pause time.Duration
	// BreakerFailures in a row stop all requests for BreakerOpen; then one is let through.
	BreakerFailures int
	BreakerOpen     time.Duration
	// MaxRetryAfter bounds what a Retry-After can ask for.
	MaxRetryAfter time.Duration
}

// Check tells everything that is wrong with the configuration at once.
func (c *Config) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		// it is not repeated: it may hold a password
		bad("the URL is not http(s)://host[:port][/path], without user and query")
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		bad("the token holds what is not printable ASCII")
	}
	if err := hongbao.CheckID(c.Deployment); err != nil || len(c.Deployment) > MaxDeployment ||
		strings.ContainsAny(c.Deployment, keySep+"/\"\\") {
		bad("deployment %.80q: want 1 to %d letters, digits, - or _", c.Deployment, MaxDeployment)
	}
	c.checkTimes(bad)
	number := func(name string, v, low, high int64) {
		if v < low || v > high {
			bad("%s is %d: want %d to %d", name, v, low, high)
		}
	}
	number("BodyBytes", c.BodyBytes, 512, 1<<20)
	number("Concurrency", int64(c.Concurrency), 1, 10_000)
	number("BatchCredits", int64(c.BatchCredits), 0, 1_000)
	number("Repeats", int64(c.Repeats), 0, 20)
	number("BreakerFailures", int64(c.BreakerFailures), 1, 1_000_000)
	c.checkVerified(bad)
	if c.BatchCredits > 0 && c.Retention == 0 {
		bad("BatchCredits is %d, but Retention 0: batches are for idempotent remotes only", c.BatchCredits)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("remote configuration: %w", errors.Join(errs...))
}

func (c *Config) checkVerified(bad func(string, ...any)) {
	if c.Verified != "" && c.Verified != NotSent && (c.Verified != Done || c.Queryable) || c.Verified != "" && c.Replay {
		bad("Verified is %.40q: want %s or, for remotes that can't be asked, %s; and neither with Replay", c.Verified,
			NotSent, Done)
	}
	if (c.Verified == NotSent) == c.VerifiedAt.IsZero() {
		bad("VerifiedAt is %s: it goes with Verified %s, and only with that", c.VerifiedAt, NotSent)
	}
}

func (c *Config) checkTimes(bad func(string, ...any)) {
	for _, d := range []struct {
		name string
		v    time.Duration
	}{
		{"ConnectTimeout", c.ConnectTimeout}, {"HeaderTimeout", c.HeaderTimeout}, {"Timeout", c.Timeout}, {"IdleTimeout",
			c.IdleTimeout},
		{"ClaimTime", c.ClaimTime}, {"Pause", c.Pause}, {"BreakerOpen", c.BreakerOpen}, {"MaxRetryAfter", c.MaxRetryAfter},
	} {
		if d.v < time.Millisecond {
			bad("%s is %s: want at least 1ms", d.name, d.v)
		}
	}
	if c.Timeout > c.ClaimTime {
		bad("Timeout is %s: want at most ClaimTime, %s", c.Timeout, c.ClaimTime)
	}
	if c.Retention < 0 || c.Retention > 0 && (c.Margin <= c.ClaimTime || c.Margin >= c.Retention) {
		bad("Margin is %s: want more than ClaimTime, %s, and less than Retention, %s", c.Margin, c.ClaimTime, c.Retention)
	}
	if c.QueryFinal != 0 && (!c.Queryable || c.QueryFinal < c.ClaimTime) {
		bad("QueryFinal is %s: it is for queryable remotes, and at least ClaimTime, %s", c.QueryFinal, c.ClaimTime)
	}
}

func (c *Config) idempotent() bool { return c.Retention > 0 }
