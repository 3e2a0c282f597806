package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/flatjson"
)

// newTransport sets every option whose default could repeat a request or hang. A transport follows no redirect: that is
// a response like any other.
func newTransport(c *Config) *http.Transport {
	t := &http.Transport{
		Proxy:                  nil, // no proxy from the environment
		DialContext:            (&net.Dialer{Timeout: c.ConnectTimeout, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:        c.TLS.Clone(),
		TLSHandshakeTimeout:    c.ConnectTimeout,
		DisableKeepAlives:      !c.idempotent(), // a kept connection may have been closed: its requests end as Unknown
		DisableCompression:     true,
		MaxIdleConns:           c.Concurrency,
		MaxIdleConnsPerHost:    c.Concurrency,
		MaxConnsPerHost:        c.Concurrency,
		IdleConnTimeout:        c.IdleTimeout,
		ResponseHeaderTimeout:  c.HeaderTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true) // HTTP/2 repeats requests by itself
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

// traceKey is the context key of the traceparent of the grab that a request is about.
type traceKey struct{}

// inTrace adds a grant's traceparent to the requests about it, so that the remote continues the trace.
func inTrace(ctx context.Context, g *hongbao.Grant) context.Context {
	if g.Trace == "" {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, g.Trace)
}

// do sends one request and reads the response, at most most bytes of it.
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
		// net/http sends a body that it knows to be in memory in one write with the head. Without GetBody it can't
		// send the body again.
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
	a = answer{status: resp.StatusCode, sent: true, retryAfter: retryAfter(resp.Header.Get("Retry-After"))}
	a.body, a.err = readBody(resp, most)
	return a
}

func readBody(resp *http.Response, most int64) ([]byte, error) {
	defer resp.Body.Close()
	if e := resp.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, errors.New("the answer is compressed, which was not asked for")
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

// retryAfter reads the header in both of its forms; 0 if there is no valid one.
func retryAfter(value string) time.Duration {
	if value == "" {
		return 0
	}
	if s, err := strconv.ParseInt(value, 10, 32); err == nil && s > 0 {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// credit is the JSON of a request. The batch endpoint takes the key in the credit, the other in the header.
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
	errEcho = errors.New("the answer is about another credit than was asked for")
	errBody = errors.New("the answer can't be read")
)

// compare returns an error unless a response is about the credit: same reference, account, currency and amount.
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

// code returns the error code in a response; empty if it has none.
func code(body []byte) string {
	o, err := flatjson.Parse(body, "", 0)
	if err != nil {
		return ""
	}
	c, _ := o.Text("code")
	return c
}
