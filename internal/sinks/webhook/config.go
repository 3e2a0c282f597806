package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// Config says where a sink sends its events. A zero value is refused unless the field's comment allows it. The star in
// the names of knobs stands for the name of the sink.
type Config struct {
	// URL of the endpoint that receives the events, http(s)://host[:port][/path].
	URL string `knob:"webhook.*.url,common" form:"url"`
	// Secret signs the events: whsec_ and base64 of 24 to 64 bytes. It is never logged.
	Secret string
	// PreviousSecret, if not empty, also signs the events, while the receiver changes from it to Secret.
	PreviousSecret string
	// TLS is the configuration for https, with a client certificate if the endpoint needs one; nil means the system's
	// root certificates.
	TLS *tls.Config
	// Deployment is the id of the deployment. The source of its events is /hongbao/<Deployment>.
	Deployment string `form:"name"`
	// Campaigns supplies data that a grant may lack: the code of a coupon, and the currency of a grant from the ledger.
	// If it is nil, events have only what their grants have.
	Campaigns cloudevent.Campaigns
	// Dial opens the connections, without a check of addresses; nil for the machine's network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Time limit for one attempt to connect to the endpoint, and for one TLS handshake.
	ConnectTimeout time.Duration `knob:"webhook.*.connect_timeout" default:"2s" want:"1ms to 1m"`
	// Time limit for one request to the endpoint, until the whole response is read.
	//
	// It must be below the time limit of a call of Handle: a request is not sent if the rest of the call is shorter.
	Timeout time.Duration `knob:"webhook.*.timeout" default:"15s" want:"1ms to 5m"`
	// The most concurrent requests of one process to the endpoint.
	Concurrency int `knob:"webhook.*.concurrency" default:"32" want:"1 to 10_000 requests"`
	// The longest wait that a Retry-After of the endpoint can cause.
	MaxRetryAfter time.Duration `knob:"webhook.*.max_retry_after" default:"1m" want:"1ms to 1h"`
	// After this many failures in a row, the circuit breaker opens. Then the worker sends no events to the endpoint.
	BreakerFailures int `knob:"webhook.*.breaker_failures" default:"50" want:"1 to 1_000_000"`
	// How long the open circuit breaker stops the events, before it lets one request through.
	BreakerOpen time.Duration `knob:"webhook.*.breaker_open" default:"5s" want:"1ms to 1h"`
	// Whether the endpoint may be in a private network or on this machine. Otherwise workers connect only to public
	// addresses.
	AllowPrivate bool `knob:"webhook.*.allow_private" default:"false"`
}

// Check returns all problems of the configuration in one error. The error has no secret.
func (c *Config) Check() error {
	errs := knob.Check(c)
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.URL == "" {
		bad("the URL is empty: want http(s)://host[:port][/path]")
	}
	if c.TLS != nil && strings.HasPrefix(c.URL, "http://") {
		bad("TLS is set, but the URL does not begin with https://: use https, or remove the settings of TLS")
	}
	if _, err := key(c.Secret); err != nil {
		bad("Secret %w", err)
	}
	if c.PreviousSecret != "" {
		if _, err := key(c.PreviousSecret); err != nil {
			bad("PreviousSecret %w", err)
		}
		if c.PreviousSecret == c.Secret {
			bad("PreviousSecret is the same as Secret: want the secret before the change, or none")
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("webhook configuration: %w", errors.Join(errs...))
}
