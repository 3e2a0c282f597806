package ops

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/retry"
)

// Remote calls the administration API of a server (control.listen) with an API key. The server records the key as
// the one who decides.
type Remote struct {
	server *url.URL
	key    string
	client *http.Client
	// Waits, if not nil, is called after each call: on says that the server still works on what was asked.
	Waits func(on bool)
}

// Limits of a call.
const (
	callTime  = 2 * time.Minute // of one request; a requeue works for a while before it answers
	tryFor    = 5 * time.Second // how long a call is retried while the server is down
	maxAnswer = 64 << 20
	maxPage   = 500         // items on a page
	pollEvery = time.Second // interval of requests while the server's work continues
)

// NewRemote checks the address and the key, and returns a client. It sends nothing. roots are the CAs for the server's
// certificate; nil stands for the CAs of the system.
func NewRemote(server, key string, roots *x509.CertPool) (*Remote, error) {
	u, err := url.Parse(server)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return nil, fmt.Errorf("server %.80q: want https://HOST:PORT, the address of a control listener (control.listen)", server)
	case u.Scheme == "http" && !knob.IsLoopback(u.Hostname()):
		return nil, fmt.Errorf("server %s: http would send the key unencrypted; want https, or an address of this machine", u)
	case key == "":
		return nil, errors.New("the key is empty: `hongbao key create` creates one")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // its type is known
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	return &Remote{server: u, key: key, client: &http.Client{
		Transport: transport, Timeout: callTime,
		// Do not follow redirects: a redirect would send the key to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// get sends a GET request and decodes the answer.
func (r *Remote) get(ctx context.Context, path string, query url.Values, to any) error {
	_, err := r.call(ctx, http.MethodGet, path, "", query, nil, to)
	return err
}

// post sends a change with a new Idempotency-Key, so that retries of the request apply it only once. more reports
// whether the server answered before the work was done.
func (r *Remote) post(ctx context.Context, path string, in, to any) (more bool, err error) {
	return r.postWith(ctx, rand.Text(), path, in, to)
}

// postWith is post with the given Idempotency-Key.
func (r *Remote) postWith(ctx context.Context, key, path string, in, to any) (more bool, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return false, fmt.Errorf("write the request: %w", err)
	}
	return r.call(ctx, http.MethodPost, path, key, nil, body, to)
}

// postAll sends a change, and repeats the request until the server has finished the work.
func (r *Remote) postAll(ctx context.Context, path string, in, to any) error {
	key := rand.Text()
	for {
		more, err := r.postWith(ctx, key, path, in, to)
		if err != nil || !more {
			return err
		}
		if !retry.Pause(ctx, pollEvery) {
			return context.Cause(ctx)
		}
	}
}

func (r *Remote) call(ctx context.Context, method, path, key string, query url.Values, body []byte, to any) (more bool,
	err error) {
	at := r.server.JoinPath(path)
	at.RawQuery = query.Encode()
	err = retry.Do(ctx, retry.Backoff(200*time.Millisecond, 2*time.Second, tryFor), func() (again bool, err error) {
		more, err = r.try(ctx, method, at.String(), key, body, to)
		return !IsInput(err) && retry.MayHelp(err) && ctx.Err() == nil, err
	})
	if err != nil {
		err = fmt.Errorf("%s %s: %w", method, at, err)
	}
	if r.Waits != nil {
		r.Waits(more && err == nil)
	}
	return more, err
}

// try sends a request without retries.
func (r *Remote) try(ctx context.Context, method, at, key string, body []byte, to any) (more bool, err error) {
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := r.client.Do(req)
	if err != nil {
		var certificate *tls.CertificateVerificationError
		if errors.As(err, &certificate) {
			return false, hongbao.Errorf(hongbao.ClassPermanent, "%w; give the server's CA with --server-ca", certificate)
		}
		return false, hongbao.Outagef(hongbao.ClassTransient, "%w; does `hongbao serve` run there with a control listener?",
			errors.Unwrap(err))
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	switch {
	case err != nil:
		return false, hongbao.Outagef(hongbao.ClassTransient, "the connection broke during the answer: %w", err)
	case res.StatusCode != http.StatusOK && res.StatusCode != http.StatusAccepted:
		return false, problem(res, text)
	}
	if err := json.Unmarshal(text, to); err != nil {
		return false, hongbao.Errorf(hongbao.ClassPermanent, "the answer is not JSON of this API: %w", err)
	}
	return res.StatusCode == http.StatusAccepted, nil
}

// problem converts an error answer to an error. The error has the same class as the error of Local.
func problem(res *http.Response, text []byte) error {
	var p struct{ Code, Detail, Instance string }
	if json.Unmarshal(text, &p) != nil || p.Code == "" {
		return hongbao.Errorf(hongbao.ClassPermanent, "the server answered %s: it is not a control listener", res.Status)
	}
	says := p.Code
	if p.Detail != "" {
		says += ": " + p.Detail
	}
	switch {
	case p.Code == "idempotency_key_in_use", res.StatusCode == http.StatusTooManyRequests:
		return hongbao.Errorf(hongbao.ClassTransient, "%s", says)
	case res.StatusCode >= http.StatusInternalServerError:
		return hongbao.Outagef(hongbao.ClassTransient, "%s (request %s in the server's log)", says, p.Instance)
	case res.StatusCode == http.StatusBadRequest, p.Code == "unknown_sink":
		return &InputError{Code: p.Code, Text: says}
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "%s", says)
}

// reason puts the decider's name in front of the reason, because the server knows only the API key.
func reason(by, why string) string {
	if by == "" {
		return why
	}
	return by + ": " + why
}

// pages reads up to limit items of a list, page by page. one reads a page with get. It returns the number of items on
// the page and the position of the next page, or "" after the last page.
func (r *Remote) pages(ctx context.Context, path string, q url.Values, limit int,
	one func(get func(to any) error) (n int, next string, err error)) error {
	for {
		q.Set("limit", strconv.Itoa(min(limit, maxPage)))
		n, next, err := one(func(to any) error { return r.get(ctx, path, q, to) })
		if limit -= n; err != nil || next == "" || limit <= 0 {
			return err
		}
		q.Set("after", next)
	}
}
