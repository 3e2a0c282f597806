package bank

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/hongbao-project/hongbao"
)

func TestCreditOnce(t *testing.T) {
	t.Parallel()
	s := setup(t)
	first := s.call(t, "POST", "/v1/credits", good)
	require.Equal(t, 201, first.Status, first.Text)
	require.Equal(t, map[string]any{"reference": "r1", "account": "u1", "currency": "CNY", "amount": 100.0,
		"created_at": "2023-11-14T22:13:20.000Z"}, first.Body)
	again := s.call(t, "POST", "/v1/credits", good, header("Idempotency-Key", "k1"))
	require.Equal(t, 200, again.Status)
	require.Equal(t, first.Text, again.Text, "the same answer, byte for byte")
	other := s.call(t, "POST", "/v1/credits", strings.Replace(good, "100", "101", 1))
	require.Equal(t, 422, other.Status)
	require.Equal(t, "idempotency_key_reused", other.Code())
	other = s.call(t, "POST", "/v1/credits", good, header("Idempotency-Key", "k2"))
	require.Equal(t, 422, other.Status)
	require.Equal(t, "reference_reused", other.Code())
	require.Equal(t, 1, s.booked())

	got := s.call(t, "GET", "/v1/credits/r1", "")
	require.Equal(t, 200, got.Status)
	require.Equal(t, first.Text, got.Text)
	require.Equal(t, "credit_not_found", s.call(t, "GET", "/v1/credits/r2", "").Code())
	account := s.call(t, "GET", "/v1/accounts/u1", "")
	require.JSONEq(t, `{"account":"u1","balances":[{"currency":"CNY","balance":100,"credits":1}]}`, account.Text)
	require.JSONEq(t, `{"account":"u2","balances":[]}`, s.call(t, "GET", "/v1/accounts/u2", "").Text)
}

type request struct {
	method, path, body string
	tweaks             []tweak
}

func (q *request) send(t *testing.T, s *server) *reply {
	t.Helper()
	return s.call(t, q.method, q.path, q.body, q.tweaks...)
}

// endpoint returns the path in the API document that the request matches, or "" if there is none.
func (q *request) endpoint() string {
	path, _, _ := strings.Cut(q.path, "?")
	for _, e := range (&Balance{}).endpoints() {
		at := regexp.MustCompile("^" + regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(e.Path, "[^/]+") + "$")
		if e.Method == q.method && at.MatchString(path) {
			return e.Path
		}
	}
	return ""
}

func do(method, path string, tweaks ...tweak) request { return request{method, path, "", tweaks} }

func post(body string, tweaks ...tweak) request { return request{"POST", "/v1/credits", body, tweaks} }

func amount(text string) string { return strings.Replace(good, "100", text, 1) }

func unsized(r *http.Request) { r.ContentLength = -1 }

// refused has invalid requests with their expected answers (B1 to B10, B21, B27, B31 and B32).
var refused = map[string]struct {
	request
	status int
	code   string
}{
	"empty":               {post(""), 400, "body_required"},
	"too long":            {post(good + strings.Repeat(" ", 4097-len(good))), 413, "body_too_large"},
	"too long, no length": {post(good+strings.Repeat(" ", 4097-len(good)), unsized), 413, "body_too_large"},
	"compressed":          {post(good, header("Content-Encoding", "gzip")), 415, "content_encoding"},
	"identity":            {post(good, header("Content-Encoding", "identity")), 415, "content_encoding"},
	"a form":              {post(good, header("Content-Type", "application/x-www-form-urlencoded")), 415, "content_type"},
	"no type":             {post(good, header("Content-Type", "")), 415, "content_type"},
	"another charset":     {post(good, header("Content-Type", "application/json; charset=utf-16")), 415, "content_type"},
	"no JSON":             {post("hello"), 400, "invalid_json"},
	"a list":              {post("[" + good + "]"), 400, "invalid_json"},
	"garbage behind":      {post(good + "x"), 400, "invalid_json"},
	"two documents":       {post(good + good), 400, "invalid_json"},
	"unknown field":       {post(strings.Replace(good, "{", `{"user_id":"u9",`, 1)), 400, "unknown_field"},
	"other case":          {post(strings.Replace(good, "account", "Account", 1)), 400, "unknown_field"},
	"key in the body":     {post(strings.Replace(good, "{", `{"key":"k9",`, 1)), 400, "unknown_field"},
	"twice":               {post(strings.Replace(good, "{", `{"amount":1,`, 1)), 400, "duplicate_field"},
	"deep": {post(strings.Repeat(`{"reference":`, 200) + "1" + strings.Repeat("}", 200)), 400,
		"nested_value"},
	"no reference":        {post(strings.Replace(good, `"reference":"r1",`, "", 1)), 400, "reference_invalid"},
	"account with NUL":    {post(strings.Replace(good, "u1", `u\u0000`, 1)), 400, "account_invalid"},
	"look-alike":          {post(strings.Replace(good, "u1", "u\u0661", 1)), 400, "account_invalid"},
	"account of 10 KB":    {post(strings.Replace(good, "u1", strings.Repeat("u", 3000), 1)), 400, "account_invalid"},
	"account is a number": {post(strings.Replace(good, `"u1"`, "1", 1)), 400, "account_invalid"},
	"lower-case currency": {post(strings.Replace(good, "CNY", "cny", 1)), 400, "currency_invalid"},
	"unknown currency":    {post(strings.Replace(good, "CNY", "CNX", 1)), 400, "currency_invalid"},
	"1.5":                 {post(amount("1.5")), 400, "amount_not_integer_minor_units"},
	"1e3":                 {post(amount("1e3")), 400, "amount_not_integer_minor_units"},
	"quoted":              {post(amount(`"100"`)), 400, "amount_not_integer_minor_units"},
	"underscore":          {post(amount("1_000")), 400, "invalid_json"},
	"0":                   {post(amount("0")), 400, "amount_out_of_range"},
	"-1":                  {post(amount("-1")), 400, "amount_out_of_range"},
	"-0":                  {post(amount("-0")), 400, "amount_out_of_range"},
	"2^53":                {post(amount("9007199254740992")), 400, "amount_out_of_range"},
	"2^63":                {post(amount("9223372036854775808")), 400, "amount_out_of_range"},
	"10^30":               {post(amount("1" + strings.Repeat("0", 30))), 400, "amount_out_of_range"},
	"no key":              {post(good, header("Idempotency-Key", "")), 400, "idempotency_key_required"},
	"bad key":             {post(good, header("Idempotency-Key", `"a b"`)), 400, "idempotency_key_invalid"},
	"empty key":           {post(good, header("Idempotency-Key", `""`)), 400, "idempotency_key_invalid"},
	"two keys": {post(good, func(r *http.Request) { r.Header.Add("Idempotency-Key", "k2") }), 400,
		"idempotency_key_invalid"},
	"no key of the API":   {post(good, header("Authorization", "")), 401, "unauthorized"},
	"wrong API key":       {post(good, as(clientText+"x")), 401, "unauthorized"},
	"unknown API key":     {post(good, as(strangeText)), 401, "unauthorized"},
	"half an API key":     {post(good, as(clientText[:40])), 401, "unauthorized"},
	"another's secret":    {post(good, as(clientText[:16]+theirText[16:])), 401, "unauthorized"},
	"basic":               {post(good, header("Authorization", "Basic "+clientText)), 401, "unauthorized"},
	"nothing in the fund": {post(strings.Replace(good, "u1", "poor", 1)), 503, "fund_exhausted"},
	"not to book":         {post(good, as(accountText)), 403, "forbidden"},
	"not of accounts":     {do("GET", "/v1/accounts/u1", as(clientText)), 403, "forbidden"},
	"no statements":       {do("GET", "/v1/accounts/u1/statement?currency=CNY", as(clientText)), 403, "forbidden"},
	"too much for it":     {post(strings.Replace(good, "u1", "full", 1)), 422, "credit_refused"},
	"PUT":                 {do("PUT", "/v1/credits"), 405, "method_not_allowed"},
	"TRACE":               {do("TRACE", "/v1/credits"), 405, "method_not_allowed"},
	"DELETE a credit":     {do("DELETE", "/v1/credits/r1"), 405, "method_not_allowed"},
	"another path":        {do("GET", "/v2/credits"), 404, "not_found"},
	"a path, no key":      {do("GET", "/v2/credits", header("Authorization", "")), 401, "unauthorized"},
	"double slash":        {do("GET", "//v1/accounts/u1"), 404, "not_found"},
	"double slash inside": {do("GET", "/v1//accounts/u1"), 404, "not_found"},
	"slash at the end":    {do("GET", "/v1/accounts/u1/"), 404, "not_found"},
	"dot in the path":     {do("GET", "/v1/./accounts/u1"), 404, "not_found"},
	"dots in the path":    {do("GET", "/v1/credits/.."), 404, "not_found"},
	"dots, no key":        {do("GET", "/v1/credits/..", header("Authorization", "")), 401, "unauthorized"},
	"slashes, no key":     {do("GET", "//v1/accounts/u1", header("Authorization", "")), 401, "unauthorized"},
	"POST, odd path":      {do("POST", "/v1//credits"), 404, "not_found"},
	"reference .":         {post(strings.Replace(good, "r1", ".", 1)), 400, "reference_invalid"},
	"reference ..":        {post(strings.Replace(good, "r1", "..", 1)), 400, "reference_invalid"},
	"read reference ..":   {do("GET", "/v1/credits/%2e%2e"), 400, "reference_invalid"},
	"bad reference":       {do("GET", "/v1/credits/a%20b"), 400, "reference_invalid"},
	"bad account":         {do("GET", "/v1/accounts/%00"), 400, "account_invalid"},
	"bad limit":           {do("GET", "/v1/accounts/u1/statement?currency=CNY&limit=0"), 400, "limit_invalid"},
	"bad cursor":          {do("GET", "/v1/accounts/u1/statement?currency=CNY&after=x"), 400, "after_invalid"},
	"no currency":         {do("GET", "/v1/accounts/u1/statement"), 400, "currency_invalid"},
	"list, bad cursor":    {do("GET", "/v1/credits?after=a%20b"), 400, "after_invalid"},
	"list, bad limit":     {do("GET", "/v1/credits?limit=1001"), 400, "limit_invalid"},
	"list, other name":    {do("GET", "/v1/credits?account=u1"), 400, "unknown_parameter"},
	"broken query":        {do("GET", "/v1/credits?limit=%zz"), 400, "unknown_parameter"},
	"unknown parameter":   {do("GET", "/v1/accounts/u1/statement?offset=1"), 400, "unknown_parameter"},
	"limit twice": {do("GET", "/v1/accounts/u1/statement?currency=CNY&limit=1&limit=2"), 400,
		"unknown_parameter"},
	"injection in the log": {do("GET", "/v1/credits/%0A%7B%22level%22:%22error%22%7D"), 400, "reference_invalid"},
}

// A refused request books nothing, and the answer quotes nothing from the request.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := setup(t)
	for name, c := range refused {
		t.Run(name, func(t *testing.T) {
			r := c.send(t, s)
			require.Equal(t, c.status, r.Status, r.Text)
			require.Equal(t, c.code, r.Code(), r.Text)
			require.NotEmpty(t, r.Head.Get("X-Request-Id"))
			if c.code != "" {
				r.Refused(t, c.code)
			}
			require.Equal(t, c.status == 413, r.Closed, "the server closes the connection after a body that is too long")
			switch c.status {
			case 405:
				require.NotEmpty(t, r.Head.Get("Allow"))
			case 503:
				require.NotEmpty(t, r.Head.Get("Retry-After"))
			case 401:
				require.Equal(t, "Bearer", r.Head.Get("WWW-Authenticate"))
			}
			require.NotContains(t, r.Text, "user_id")
			require.NotContains(t, r.Text, clientText[16:])
		})
	}
	require.Zero(t, s.booked())
	for _, e := range s.logs.All() { // text from a path stays inside one value of one log line (B52)
		for _, f := range e.Context {
			require.NotContains(t, f.String, clientText[16:])
		}
	}
}

// The log has the request id of each refusal at the default level, so that support can find why a credit was
// refused.
func TestRefusalsAreLogged(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.Equal(t, 201, s.call(t, "POST", "/v1/credits", good).Status)
	for code, r := range map[string]*reply{
		"idempotency_key_reused": s.call(t, "POST", "/v1/credits", amount("101")),
		"reference_reused":       s.call(t, "POST", "/v1/credits", good, header("Idempotency-Key", "k2")),
		"forbidden":              s.call(t, "POST", "/v1/credits", good, as(accountText)),
		"unauthorized":           s.call(t, "POST", "/v1/credits", good, as(strangeText)),
	} {
		r.Refused(t, code)
		lines := s.logs.Filter(func(e observer.LoggedEntry) bool { return e.Level >= zap.InfoLevel }).
			FilterField(zap.String("request_id", r.Head.Get("X-Request-Id"))).All()
		require.Len(t, lines, 1, code)
		fields := lines[0].ContextMap()
		require.Equal(t, code, fields["problem"])
		if code != "unauthorized" {
			require.Equal(t, "c1", fields["client"])
			require.Contains(t, []any{clientKey1.ID, accountKey.ID}, fields["key"])
		}
	}
}

// While a request runs, a second request with the same key is refused (B20).
func TestInProgress(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.hold, s.began = make(chan struct{}), make(chan struct{}, 4)
	var first *reply
	var wg sync.WaitGroup
	wg.Go(func() { first = s.call(t, "POST", "/v1/credits", good) })
	<-s.began
	second := s.call(t, "POST", "/v1/credits", good)
	require.Equal(t, 409, second.Status)
	require.Equal(t, "in_progress", second.Code())
	require.Equal(t, "1", second.Head.Get("Retry-After"))
	batch := s.call(t, "POST", "/v1/credits:batch", `{"credits":[`+strings.Replace(good, "{", `{"key":"k1",`, 1)+`]}`,
		func(*http.Request) { close(s.hold) })
	require.Equal(t, 200, batch.Status)
	wg.Wait()
	require.Equal(t, 201, first.Status)
	s.hold = nil
	require.Equal(t, 200, s.call(t, "POST", "/v1/credits", good).Status, "afterwards it is a repeat")
}

func TestBatch(t *testing.T) {
	t.Parallel()
	s := setup(t)
	one := func(key, reference, account, amount string) string {
		return fmt.Sprintf(`{"key":%q,"reference":%q,"account":%q,"currency":"CNY","amount":%s}`, key, reference, account,
			amount)
	}
	body := `{"credits":[` + strings.Join([]string{one("k1", "r1", "u1", "5"), one("k2", "r2", "u1", "6"), one("k1",
		"r1", "u1", "5"),
		one("k3", "r1", "u1", "5"), one("k4", "r4", "full", "5"), one("k5", "r5", "u1", "0.5"), one("", "r6", "u1", "5"),
		one("a b", "r7", "u1", "5"),
		`{"key":"k8","x":1}`, one("k9", "r9", "u2", "7")}, ",") + `]}`
	status := func(r *reply) (list []string) {
		for _, v := range r.Body["results"].([]any) {
			m := v.(map[string]any)
			list = append(list, fmt.Sprint(m["status"], " ", m["reference"], " ", m["code"]))
		}
		return list
	}
	r := s.call(t, "POST", "/v1/credits:batch", body)
	require.Equal(t, 200, r.Status)
	want := []string{"201 r1 <nil>", "201 r2 <nil>", "409 <nil> in_progress", "422 <nil> reference_reused",
		"422 <nil> credit_refused",
		"400 <nil> amount_not_integer_minor_units", "400 <nil> idempotency_key_required",
		"400 <nil> idempotency_key_invalid", "400 <nil> unknown_field", "201 r9 <nil>"}
	require.Equal(t, want, status(r))
	require.Equal(t, 3, s.booked())
	want[0], want[1], want[9] = "200 r1 <nil>", "200 r2 <nil>", "200 r9 <nil>"
	require.Equal(t, want, status(s.call(t, "POST", "/v1/credits:batch", body)))
	require.Equal(t, 3, s.booked())
	for body, code := range map[string]string{
		`{"credits":[]}`: "credits_required", `{}`: "credits_required", `{"credits":{}}`: "nested_value",
		`{"credits":[],"x":1}`:                              "unknown_field",
		`{"credits":[` + strings.Repeat("{},", 20) + `{}]}`: "too_many_credits",
	} {
		r := s.call(t, "POST", "/v1/credits:batch", body)
		require.Equal(t, 400, r.Status, body)
		require.Equal(t, code, r.Code(), body)
	}
}

// Each class of ledger error becomes a status that tells the caller what to do.
func TestLedgerFails(t *testing.T) {
	t.Parallel()
	s := setup(t)
	require.Equal(t, 200, s.call(t, "GET", "/v1/credits", "").Status, "the keys are known")
	for class, want := range map[hongbao.Class]string{hongbao.ClassTransient: "503 unavailable",
		hongbao.ClassUnknown: "500 credit_unknown", hongbao.ClassBroken: "500 credit_unknown"} {
		s.err = hongbao.Errorf(class, "secret detail")
		r := s.call(t, "POST", "/v1/credits", good)
		require.Equal(t, want, fmt.Sprint(r.Status, " ", r.Code()))
		require.NotContains(t, r.Text, "secret")
		require.Equal(t, r.Status == 503, r.Head.Get("Retry-After") != "")
		batch := s.call(t, "POST", "/v1/credits:batch", `{"credits":[`+strings.Replace(good, "{", `{"key":"k1",`, 1)+`]}`)
		require.Contains(t, batch.Text, want[4:])
		for _, path := range []string{"/v1/credits/zz", "/v1/credits", "/v1/accounts/u1",
			"/v1/accounts/u1/statement?currency=CNY"} {
			require.Equal(t, 503, s.call(t, "GET", path, "").Status)
		}
	}
}

func TestBusy(t *testing.T) {
	t.Parallel()
	s := setup(t, func(c *Config) { c.InFlight = 1 })
	s.hold, s.began = make(chan struct{}), make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() { require.Equal(t, 201, s.call(t, "POST", "/v1/credits", good).Status) })
	<-s.began
	r := s.call(t, "GET", "/v1/accounts/u1", "")
	require.Equal(t, 503, r.Status)
	require.Equal(t, "busy", r.Code())
	close(s.hold)
	wg.Wait()
}

// The server cuts off a slow sender, and still serves other clients (B33).
func TestSlowloris(t *testing.T) {
	t.Parallel()
	s := setup(t, func(c *Config) { c.ReadHeaderTimeout, c.ReadTimeout = 3*time.Second, 4*time.Second })
	addr := strings.TrimPrefix(s.url, "http://")
	for name, text := range map[string]string{
		"head": "POST /v1/credits HTTP/1.1\r\nHost: x\r\n",
		"body": "POST /v1/credits HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: " +
			"Bearer " + clientText +
			"\r\nContent-Length: 100\r\n\r\n{",
	} {
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		_, err = conn.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		data, err := io.ReadAll(bufio.NewReader(conn))
		require.NoError(t, err, "%s: the server closes the connection", name)
		if name == "body" {
			require.Contains(t, string(data), "408")
		}
		require.NoError(t, conn.Close())
		require.Equal(t, 200, s.call(t, "GET", "/v1/accounts/u1", "").Status)
	}
	require.Zero(t, s.booked())
}

// Run answers the running requests after its context has ended, and accepts no new ones.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.hold, s.began = make(chan struct{}), make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() { require.Equal(t, 201, s.call(t, "POST", "/v1/credits", good).Status) })
	<-s.began
	wg.Go(s.stop)
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, 5*time.Second, 5*time.Millisecond)
	close(s.hold)
	wg.Wait()
	require.Equal(t, 1, s.booked())
}

func TestConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := NewBalance(Config{Listen: "x"}, Deps{})
	for _, part := range []string{"Listen", "ReadHeaderTimeout", "DrainTimeout", "HandleTimeout", "BatchBytes",
		"BatchCredits", "InFlight", "Book, Reader, Keys, Denied, HasRead and Log"} {
		require.ErrorContains(t, err, part)
	}
}
