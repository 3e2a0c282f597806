package ops

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
)

// Remote calls the administration API of a server (serve.control_listen) with an API key. The server records the key
// as the decider.
type Remote struct {
	server *url.URL
	key    string
	client *http.Client
}

// Bounds of a call.
const (
	callTime  = 2 * time.Minute // of one request: a requeue works for a while before it answers
	tryFor    = 5 * time.Second // how long calls to a server that is down are repeated
	maxAnswer = 64 << 20
	maxPage   = 500         // items of a page
	pollEvery = time.Second // while a refund waits
)

// NewRemote checks the address of a server and a key. It sends nothing. roots are the certificates that may sign the
// server's; nil for those of the system.
func NewRemote(server, key string, roots *x509.CertPool) (*Remote, error) {
	u, err := url.Parse(server)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" || strings.Trim(u.Path, "/") != "":
		return nil, fmt.Errorf("server %.80q: want https://HOST:PORT of a control listener (serve.control_listen)", server)
	case u.Scheme == "http" && !knob.IsLoopback(u.Hostname()):
		return nil, fmt.Errorf("server %s: http would send the key in clear; want https, or an address of this machine", u)
	case key == "":
		return nil, errors.New("the key is empty: `hongbao key create` makes one")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // the default has this type
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	return &Remote{server: u, key: key, client: &http.Client{
		Transport: transport, Timeout: callTime,
		// A redirect would send the key to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// get makes a GET request and decodes the answer.
func (r *Remote) get(ctx context.Context, path string, query url.Values, to any) error {
	_, err := r.call(ctx, http.MethodGet, path, "", query, nil, to)
	return err
}

// post makes a change exactly once, even if it sends the request several times. more reports that the server answered
// before it was done.
func (r *Remote) post(ctx context.Context, path string, in, to any) (more bool, err error) {
	return r.postWith(ctx, rand.Text(), path, in, to)
}

// postWith is post with a given Idempotency-Key.
func (r *Remote) postWith(ctx context.Context, key, path string, in, to any) (more bool, err error) {
	body, err := json.Marshal(in)
	if err != nil {
		return false, fmt.Errorf("write the request: %w", err)
	}
	return r.call(ctx, http.MethodPost, path, key, nil, body, to)
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
	return more, err
}

// try sends a request once.
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
		return false, hongbao.Outagef(hongbao.ClassTransient, "%w; is the control listener of `hongbao serve` there?",
			errors.Unwrap(err))
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	switch {
	case err != nil:
		return false, hongbao.Outagef(hongbao.ClassTransient, "the answer broke off: %w", err)
	case res.StatusCode != http.StatusOK && res.StatusCode != http.StatusAccepted:
		return false, problem(res, text)
	}
	if err := json.Unmarshal(text, to); err != nil {
		return false, hongbao.Errorf(hongbao.ClassPermanent, "the answer is no JSON of this API: %w", err)
	}
	return res.StatusCode == http.StatusAccepted, nil
}

// problem returns the error of a refusal. It has the class that the same operation would have with the stores.
func problem(res *http.Response, text []byte) error {
	var p struct{ Code, Detail, Instance string }
	if json.Unmarshal(text, &p) != nil || p.Code == "" {
		return hongbao.Errorf(hongbao.ClassPermanent, "the server answered %s, and not as a control listener does", res.Status)
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

// reason prefixes the reason with the decider's name, because the server knows only the key.
func reason(by, why string) string {
	if by == "" {
		return why
	}
	return by + ": " + why
}

// pages reads up to limit items of a list, page by page. one reads a page by get, and returns the number of its items and
// where the next page begins; "" on the last page.
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

func (f *LetterFilter) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{"sink": f.Sink, "campaign": f.Campaign, "class": f.Class, "user": f.User,
		"reason": f.Reason} {
		if value != "" {
			q.Set(name, value)
		}
	}
	for name, t := range map[string]time.Time{"from": f.From, "to": f.To} {
		if !t.IsZero() {
			q.Set(name, t.Format(time.RFC3339Nano))
		}
	}
	return q
}

// ListLetters implements Operations.
func (r *Remote) ListLetters(ctx context.Context, in LetterList) (page app.LetterPage, err error) {
	if err := in.Check(); err != nil {
		return page, err
	}
	q := in.query()
	if in.After != "" {
		q.Set("after", in.After)
	}
	page.Letters = []deadletter.Letter{}
	err = r.pages(ctx, "/v1/dead-letters", q, in.Limit, func(get func(to any) error) (int, string, error) {
		var next app.LetterPage
		err := get(&next)
		page.Letters, page.Next = append(page.Letters, next.Letters...), next.Next
		return len(next.Letters), string(next.Next), err
	})
	return page, err
}

// ShowLetter implements Operations.
func (r *Remote) ShowLetter(ctx context.Context, id string) (letter deadletter.Letter, err error) {
	if err := CheckLetter(id); err != nil {
		return letter, err
	}
	err = r.get(ctx, "/v1/dead-letters/"+id, nil, &letter)
	return letter, err
}

// RequeueLetters implements Operations.
func (r *Remote) RequeueLetters(ctx context.Context, in Requeue) (*deadletter.Report, error) {
	if in.Rate != 0 {
		return nil, &InputError{Field: "rate", Text: "needs the stores: a server goes by the sink's own bound"}
	}
	return r.letters(ctx, "requeue", in.Letters)
}

// DropLetters implements Operations.
func (r *Remote) DropLetters(ctx context.Context, in Letters) (*deadletter.Report, error) {
	return r.letters(ctx, "drop", in)
}

// letters decides about letters. The server answers after a while with its progress, and letters asks it to continue.
func (r *Remote) letters(ctx context.Context, what string, in Letters) (all *deadletter.Report, err error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	in.Why = reason(in.By, in.Why)
	for {
		var report deadletter.Report
		more, err := r.post(ctx, "/v1/dead-letters/"+what, &in, &report)
		if err != nil {
			return all, err
		}
		if all == nil {
			all = &report
		} else {
			all.Add(&report)
			all.Next = report.Next
		}
		if !more || report.Next == "" {
			return all, nil
		}
		in.After = string(report.Next)
	}
}

// ListSinks implements Operations.
func (r *Remote) ListSinks(ctx context.Context) (*app.Status, error) {
	status := &app.Status{}
	return status, r.get(ctx, "/v1/sinks", nil, status)
}

// PauseSink implements Operations.
func (r *Remote) PauseSink(ctx context.Context, in SinkPause) (app.SinkChange, error) {
	return r.turnSink(ctx, "pause", in)
}

// ResumeSink implements Operations.
func (r *Remote) ResumeSink(ctx context.Context, in SinkPause) (app.SinkChange, error) {
	return r.turnSink(ctx, "resume", in)
}

func (r *Remote) turnSink(ctx context.Context, what string, in SinkPause) (out app.SinkChange, err error) {
	if err := cmp.Or(in.Check(), checkSinkName(in.Sink)); err != nil {
		return out, err
	}
	in.Why = reason(in.By, in.Why)
	_, err = r.post(ctx, "/v1/sinks/"+in.Sink+"/"+what, &in, &out)
	return out, err
}

// LimitSink implements Operations.
func (r *Remote) LimitSink(ctx context.Context, in SinkLimit) (out app.SinkChange, err error) {
	if err := cmp.Or(in.Check(), checkSinkName(in.Sink)); err != nil {
		return out, err
	}
	in.Why = reason(in.By, in.Why)
	_, err = r.post(ctx, "/v1/sinks/"+in.Sink+"/limit", &in, &out)
	return out, err
}

// checkSinkName refuses a name that can't be part of a path.
func checkSinkName(sink string) error {
	if hongbao.CheckCampaignID(sink) != nil { // sinks follow the same rules
		return &InputError{Field: "sink", Code: "unknown_sink", Text: "is unknown: `hongbao sink list` shows the sinks"}
	}
	return nil
}

// ListCampaigns implements Operations.
func (r *Remote) ListCampaigns(ctx context.Context) (all []app.ListedCampaign, err error) {
	err = r.pages(ctx, "/v1/campaigns", url.Values{}, math.MaxInt, func(get func(to any) error) (int, string, error) {
		var page app.CampaignPage
		err := get(&page)
		all = append(all, page.Campaigns...)
		return len(page.Campaigns), string(page.Next), err
	})
	return all, err
}

// ShowCampaign implements Operations.
func (r *Remote) ShowCampaign(ctx context.Context, id string) (shown app.Shown, err error) {
	if err := checkPick(id, ""); err != nil {
		return shown, err
	}
	err = r.get(ctx, "/v1/campaigns/"+id, nil, &shown)
	return shown, err
}

// PauseCampaign implements Operations.
func (r *Remote) PauseCampaign(ctx context.Context, in CampaignPause) (CampaignState, error) {
	return r.turnCampaign(ctx, "pause", in)
}

// ResumeCampaign implements Operations.
func (r *Remote) ResumeCampaign(ctx context.Context, in CampaignPause) (CampaignState, error) {
	return r.turnCampaign(ctx, "resume", in)
}

func (r *Remote) turnCampaign(ctx context.Context, what string, in CampaignPause) (out CampaignState, err error) {
	if err := in.Check(); err != nil {
		return out, err
	}
	_, err = r.post(ctx, "/v1/campaigns/"+in.Campaign+"/"+what, &in, &out)
	return out, err
}

// ListQuarantine implements Operations.
func (r *Remote) ListQuarantine(ctx context.Context, in QuarantineList) (page app.QuarantinePage, err error) {
	if err := in.Check(); err != nil {
		return page, err
	}
	page.Grants = []app.Quarantined{}
	q := url.Values{"after": {strconv.FormatInt(in.After, 10)}}
	if in.All {
		q.Set("all", "true")
	}
	err = r.pages(ctx, "/v1/quarantine", q, in.Limit, func(get func(to any) error) (n int, after string, err error) {
		var next app.QuarantinePage
		err = get(&next)
		page.Grants, page.Next = append(page.Grants, next.Grants...), next.Next
		if next.Next != nil {
			after = strconv.FormatInt(*next.Next, 10)
		}
		return len(next.Grants), after, err
	})
	return page, err
}

// ShowQuarantined implements Operations.
func (r *Remote) ShowQuarantined(ctx context.Context, id int64) (q app.Quarantined, err error) {
	err = r.get(ctx, "/v1/quarantine/"+strconv.FormatInt(id, 10), nil, &q)
	return q, err
}

// DecideQuarantined implements Operations.
func (r *Remote) DecideQuarantined(ctx context.Context, in Decide) (q app.Quarantined, err error) {
	if err := in.Check(); err != nil {
		return q, err
	}
	in.Why = reason(in.By, in.Why)
	_, err = r.post(ctx, "/v1/quarantine/"+strconv.FormatInt(in.ID, 10)+"/decide", &in, &q)
	return q, err
}

// CampaignEnding implements Operations.
func (r *Remote) CampaignEnding(ctx context.Context, id string) (e *app.Ending, err error) {
	if err := checkPick(id, ""); err != nil {
		return nil, err
	}
	e = &app.Ending{}
	return e, r.get(ctx, "/v1/campaigns/"+id+"/ending", nil, e)
}

// CloseCampaign implements Operations.
func (r *Remote) CloseCampaign(ctx context.Context, in CampaignClose) (*app.Ending, error) {
	return r.end(ctx, in.Campaign, "close", &in)
}

// CancelCampaign implements Operations.
func (r *Remote) CancelCampaign(ctx context.Context, id string) (*app.Ending, error) {
	return r.end(ctx, id, "cancel", struct{}{})
}

// end closes or cancels a campaign.
func (r *Remote) end(ctx context.Context, id, how string, in any) (*app.Ending, error) {
	if err := checkPick(id, ""); err != nil {
		return nil, err
	}
	e := &app.Ending{}
	_, err := r.post(ctx, "/v1/campaigns/"+id+"/"+how, in, e)
	return e, err
}

// RefundCampaign implements Operations.
func (r *Remote) RefundCampaign(ctx context.Context, in CampaignRefund) (*app.Ending, error) {
	if err := cmp.Or(in.Check(), checkPick(in.Campaign, "")); err != nil {
		return nil, err
	}
	e, key := &app.Ending{}, rand.Text()
	for end := time.Now().Add(in.Wait); ; {
		more, err := r.postWith(ctx, key, "/v1/campaigns/"+in.Campaign+"/refund", &in, e)
		switch {
		case err != nil || !more:
			return e, err
		case !time.Now().Before(end) || !retry.Pause(ctx, pollEvery):
			return e, hongbao.Errorf(hongbao.ClassTransient, "%w: grants up to the close are not in the ledger yet: run it "+
				"again, or give --wait", payment.ErrSettling)
		}
	}
}

// RevealCampaign implements Operations.
func (r *Remote) RevealCampaign(ctx context.Context, id string) (*campaign.Disclosure, error) {
	if err := checkPick(id, ""); err != nil {
		return nil, err
	}
	d := &campaign.Disclosure{}
	_, err := r.post(ctx, "/v1/campaigns/"+id+"/reveal", struct{}{}, d)
	return d, err
}

// ListJournal implements Operations.
func (r *Remote) ListJournal(ctx context.Context, in access.JournalQuery) (page access.JournalPage, err error) {
	if err := CheckJournal(&in); err != nil {
		return page, err
	}
	page.Entries = []access.Entry{}
	q := url.Values{}
	for name, value := range map[string]string{"campaign": in.Campaign, "who": in.Who, "after": in.After} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if !in.Since.IsZero() {
		q.Set("since", in.Since.Format(time.RFC3339Nano))
	}
	err = r.pages(ctx, "/v1/journal", q, in.Limit, func(get func(to any) error) (int, string, error) {
		var next access.JournalPage
		err := get(&next)
		page.Entries, page.Next = append(page.Entries, next.Entries...), next.Next
		return len(next.Entries), string(next.Next), err
	})
	return page, err
}
