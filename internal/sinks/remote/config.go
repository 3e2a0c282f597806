package remote

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// Config says how to reach the remote and what it supports. A zero value is refused unless the field's comment allows
// it.
type Config struct {
	// Base URL of the remote's API, http(s)://host[:port][/path]. Requests go to this URL followed by /v1/credits.
	URL string `knob:"remote.url,common" form:"url"`
	// Token is the bearer token of the Authorization header; empty means no header. It is never logged.
	Token string
	// TLS is the configuration for https; nil means the system's root certificates.
	TLS *tls.Config
	// Deployment is part of every Idempotency-Key, so it must never change.
	Deployment string

	// Time limit for one attempt to connect to the remote, and for one TLS handshake.
	ConnectTimeout time.Duration `knob:"remote.connect_timeout" default:"2s" want:"1ms to 1m"`
	// How long a request waits for the headers of the response, after the request was written.
	HeaderTimeout time.Duration `knob:"remote.header_timeout" default:"5s" want:"1ms to 5m"`
	// Time limit for one request to the remote, until the whole response is read.
	Timeout time.Duration `knob:"remote.timeout" default:"8s" want:"1ms to 10m"`
	// After this time without a request, a connection to the remote is closed. It must be shorter than the remote's own
	// idle timeout.
	IdleTimeout time.Duration `knob:"remote.idle_timeout" default:"30s" want:"1ms to 1h"`
	// The largest response about one credit that is accepted.
	BodyBytes int64 `knob:"remote.body_bytes" default:"4096" want:"512 to 1_048_576 bytes"`
	// The most concurrent requests of one process to the remote.
	Concurrency int `knob:"remote.concurrency" default:"256" want:"1 to 10_000 requests"`
	// The most credits in one request to /v1/credits:batch; 0 if the remote has no such endpoint. For idempotent remotes
	// only.
	BatchCredits int `knob:"remote.batch_credits" default:"0" want:"0 to 1000 credits"`

	// How long the remote certainly remembers an Idempotency-Key; 0s if the remote is not idempotent. Required for
	// settlement.kind remote; there is no default.
	Retention time.Duration `knob:"remote.retention,common" want:"0s to 87600h"`
	// Safety margin that is subtracted from remote.retention, because of clock differences and slow requests.
	Margin time.Duration `knob:"remote.margin" default:"5m" want:"0s to 720h"`
	// Whether the remote answers GET /v1/credits/{reference}. Required for settlement.kind remote; there is no default. A
	// remote that is neither idempotent nor queryable gets each credit at most once, and a person decides about unknown
	// outcomes.
	Queryable bool `knob:"remote.queryable,common"`
	// How long a request can still take effect at the remote after it was sent. Later an answer "not found" is final, and
	// the worker sends the credit again. With 0s such an answer is never final.
	//
	// The time counts from the end of the sender's ClaimTime. It must be at least ClaimTime.
	QueryFinal time.Duration `knob:"remote.query_final" default:"0s" want:"0s to 8760h"`

	// Maximum number of queries per second that one audit sends to a queryable remote; 0 for no limit. A repeated query
	// counts, too.
	//
	// Only Credited waits for it. Deliveries and Sweep query without a limit.
	AuditRate int `knob:"audit.rate" default:"0" want:"0 to 1_000_000 queries a second"`

	// Replay says that the grants may have been settled before, at any time since they were granted. While the remote
	// certainly remembers their keys, the Handler sends each request again. Later it only queries the credit. It never
	// sends a credit that the remote could take for a new one.
	Replay bool
	// Verified is what a person has verified at the remote about grants whose outcome is unknown; empty if nothing.
	// Done: the remote has the credits exactly as requested, so nothing is sent. It is allowed only for remotes that
	// are not queryable. NotSent: at VerifiedAt, the remote did not have the credits, and no request was under way.
	// They are sent again, unless their last request may have been sent after VerifiedAt.
	Verified   CreditOutcome
	VerifiedAt time.Time

	// How long a pending credit belongs to the worker that began to request it. After this time, another worker may find
	// out its outcome.
	ClaimTime time.Duration `knob:"remote.claim_time" default:"20s" want:"1ms to 30m"`
	// How many more times one attempt tries to find out an unknown result. Then the consumer tries the grant again later.
	Repeats int `knob:"remote.repeats" default:"3" want:"0 to 20"`
	// How long to wait before the first repeat (remote.repeats). The wait doubles each time.
	Pause time.Duration `knob:"remote.pause" default:"100ms" want:"1ms to 1m"`
	// After this many failures in a row, the circuit breaker opens. Then the worker sends no requests to the remote.
	BreakerFailures int `knob:"remote.breaker_failures" default:"50" want:"1 to 1_000_000"`
	// How long the open circuit breaker stops the requests, before it lets one request through.
	BreakerOpen time.Duration `knob:"remote.breaker_open" default:"5s" want:"1ms to 1h"`
	// The longest wait that a Retry-After of the remote can cause.
	MaxRetryAfter time.Duration `knob:"remote.max_retry_after" default:"1m" want:"1ms to 1h"`
}

// Check returns all problems of the configuration in one error.
func (c *Config) Check() error {
	errs := knob.Check(c)
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.URL == "" {
		bad("the URL is empty: want http(s)://host[:port][/path]")
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		bad("the token contains characters that are not printable ASCII")
	}
	if err := hongbao.CheckID(c.Deployment); err != nil || len(c.Deployment) > MaxDeployment ||
		strings.ContainsAny(c.Deployment, keySep+"/\"\\") {
		bad("deployment %.80q: want 1 to %d letters, digits, - or _", c.Deployment, MaxDeployment)
	}
	c.checkTimes(bad)
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
		bad("Verified is %.40q: want %s or, for remotes that are not queryable, %s; and neither with Replay", c.Verified,
			NotSent, Done)
	}
	if (c.Verified == NotSent) == c.VerifiedAt.IsZero() {
		bad("VerifiedAt is %s: set it if, and only if, Verified is %s", c.VerifiedAt, NotSent)
	}
}

func (c *Config) checkTimes(bad func(string, ...any)) {
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
