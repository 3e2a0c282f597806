package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/flatjson"
	"github.com/hongbao-project/hongbao/internal/base/httpsink"
)

// newTransport returns a Transport that never retries a request. It has no HTTP/2, which retries requests by itself.
func newTransport(c *Config) *http.Transport {
	t := httpsink.NewTransport(httpsink.Client{
		Dial: httpsink.NewDialer(c.ConnectTimeout).DialContext, TLS: c.TLS, HandshakeTimeout: c.ConnectTimeout,
		HeaderTimeout: c.HeaderTimeout, IdleTimeout: c.IdleTimeout, Concurrency: c.Concurrency,
	})
	t.DisableKeepAlives = !c.idempotent() // the remote may close a kept connection; the result would be Unknown
	return t
}

// answer is the response to one request.
type answer struct {
	status     int
	body       []byte
	retryAfter time.Duration
	// sent says that the request may have reached the remote.
	sent bool
	err  error
}

// traceKey is the context key of a traceparent.
type traceKey struct{}

// inTrace returns a context whose requests carry the grant's traceparent, so that the remote can continue the trace.
func inTrace(ctx context.Context, g *hongbao.Grant) context.Context {
	if g.Trace == "" {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, g.Trace)
}

// do sends one request and reads the response. The response body may have at most most bytes.
func (h *Handler) do(ctx context.Context, method, path, key string, body []byte, most int64) (a answer) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	req, err := http.NewRequestWithContext(ctx, method, h.base+path, nil)
	if err != nil {
		return answer{err: fmt.Errorf("make the request: %w", err)}
	}
	req.Header.Set("User-Agent", "hongbao")
	req.Header.Set("Accept", "application/json")
	if h.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+h.cfg.Token)
	}
	if body != nil {
		// net/http writes the headers and a body that is in memory with one call. Without GetBody it can't rewind the
		// body, so it can't retry the request.
		req.Body, req.ContentLength, req.GetBody = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", strconv.Quote(key))
	}
	if parent, ok := ctx.Value(traceKey{}).(string); ok {
		req.Header.Set("Traceparent", parent)
	}
	resp, err := h.http.RoundTrip(req)
	if err != nil {
		return answer{sent: connected, err: err}
	}
	a = answer{status: resp.StatusCode, sent: true, retryAfter: httpsink.RetryAfter(resp.Header.Get("Retry-After"))}
	a.body, a.err = readBody(resp, most)
	return a
}

func readBody(resp *http.Response, most int64) ([]byte, error) {
	defer resp.Body.Close()
	if e := resp.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, errors.New("the answer is compressed, which was not requested")
	}
	if resp.ContentLength > most {
		return nil, fmt.Errorf("the answer is longer than %d bytes", most)
	}
	body := bytes.NewBuffer(make([]byte, 0, max(resp.ContentLength, 0)+bytes.MinRead))
	if _, err := body.ReadFrom(io.LimitReader(resp.Body, most+1)); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if int64(body.Len()) > most {
		return nil, fmt.Errorf("the answer is longer than %d bytes", most)
	}
	return body.Bytes(), nil
}

// credit is the JSON of a request. In a batch, each credit contains its key. Otherwise the header has the key.
type credit struct {
	Key       string         `json:"key,omitempty"`
	Reference string         `json:"reference"`
	Account   string         `json:"account"`
	Currency  string         `json:"currency"`
	Amount    hongbao.Amount `json:"amount"`
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("strings and integers can't be encoded: " + err.Error())
	}
	return data
}

var (
	errEcho = errors.New("the answer is about a different credit than the requested one")
	errBody = errors.New("the answer can't be read")
)

// compare checks that a response is about this credit: it must have the same reference, account, currency and amount.
func (c *credit) compare(o flatjson.Object) error {
	reference, _ := o.Text("reference")
	account, _ := o.Text("account")
	currency, _ := o.Text("currency")
	amount, err := o.Integer("amount", int64(hongbao.MaxAmount))
	switch {
	case err != nil:
		return fmt.Errorf("%w: amount: %w", errBody, err)
	case reference == "" || account == "" || currency == "":
		return fmt.Errorf("%w: reference, account or currency is missing", errBody)
	case reference != c.Reference || account != c.Account || currency != c.Currency || hongbao.Amount(amount) != c.Amount:
		return errEcho
	}
	return nil
}

// code returns the error code of a response, or "" if there is none.
func code(body []byte) string {
	o, err := flatjson.Parse(body, "", 0)
	if err != nil {
		return ""
	}
	c, _ := o.Text("code")
	return c
}
