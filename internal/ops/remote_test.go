package ops

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
)

// at starts a server that gives the answers in order and repeats the last one.
func at(t *testing.T, answers ...http.HandlerFunc) (*Remote, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers[min(int(n.Add(1)), len(answers))-1](w, r)
	}))
	t.Cleanup(s.Close)
	r, err := NewRemote(s.URL, "hb_key", nil)
	require.NoError(t, err)
	return r, &n
}

func says(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

func broken(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// If the outcome of a change is unknown, the request is retried with the same Idempotency-Key. The next change gets
// a new key.
func TestChangeIsSentAgainWithItsKey(t *testing.T) {
	t.Parallel()
	var keys []string
	note := func(then http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			then(w, r)
		}
	}
	ok := note(says(200, `{"sink":"kafka","changed":true}`))
	r, n := at(t, note(broken), note(says(503, `{"code":"unavailable"}`)),
		note(says(409, `{"code":"idempotency_key_in_use"}`)), ok)
	for range 2 {
		out, err := r.PauseSink(t.Context(), SinkPause{Sink: "kafka", Why: "closed"})
		require.NoError(t, err)
		require.True(t, out.Changed)
	}
	require.EqualValues(t, 5, n.Load())
	require.Len(t, keys, 5)
	require.Equal(t, []string{keys[0], keys[0], keys[0]}, keys[1:4])
	require.NotEqual(t, keys[0], keys[4])
}

// While the server works on a load, the caller hears so, and hears the end.
func TestRemoteTellsThatTheServerWorks(t *testing.T) {
	t.Parallel()
	r, _ := at(t, says(202, `{"loading":true}`), says(202, `{"loading":true}`), says(200, `{"packets":10}`))
	var told []bool
	r.Waits = func(on bool) { told = append(told, on) }
	out, err := r.LoadCampaign(t.Context(), "rain")
	require.NoError(t, err)
	require.EqualValues(t, 10, out.Packets)
	require.Equal(t, []bool{true, true, false}, told)
}

// A requeue of many letters sends requests until the server has looked at all letters. Its report has the sums
// of all answers.
func TestLettersGoOnUntilAllAreDecided(t *testing.T) {
	t.Parallel()
	var afters []string
	answer := func(status int, next string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var in Letters
			_ = json.NewDecoder(r.Body).Decode(&in)
			afters = append(afters, in.After)
			says(status, `{"decision":"dropped","matched":2,"resolved":2,"failures":[],"next":`+next+`}`)(w, r)
		}
	}
	r, _ := at(t, answer(202, `"kafka/0/5-0"`), answer(202, `"kafka/0/9-0"`), answer(200, "null"))
	n := int64(6)
	report, err := r.DropLetters(t.Context(), Letters{All: true, Expect: &n, By: "ann", Why: "a test"})
	require.NoError(t, err)
	require.EqualValues(t, 6, report.Resolved)
	require.Empty(t, report.Next)
	require.Equal(t, []string{"", "kafka/0/5-0", "kafka/0/9-0"}, afters)
}

// If the caller wants more items than a page of the server has, ListLetters reads several pages.
func TestListIsLongerThanAPage(t *testing.T) {
	t.Parallel()
	var asked []string
	page := func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		next := `"balance/0/5-0"`
		if len(asked) > 1 {
			next = "null"
		}
		text := `{"letters":[`
		for i := range 500 {
			if i > 0 {
				text += ","
			}
			text += `{"id":"x"}`
		}
		says(200, text+`],"next":`+next+`}`)(w, r)
	}
	r, _ := at(t, page)
	got, err := r.ListLetters(t.Context(), LetterList{Limit: 1100})
	require.NoError(t, err)
	require.Len(t, got.Letters, 1000)
	require.Equal(t, []string{"limit=500", "after=balance%2F0%2F5-0&limit=500"}, asked)
}

// An error from a server has the same class as the error of Local, because the class becomes the exit code.
func TestProblemsHaveTheirClass(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status          int
		text            string
		input, outage   bool
		class           hongbao.Class
		says            string
		sentMoreThanOne bool
	}{
		{400, `{"code":"invalid_value","detail":"why is required"}`, true, false, hongbao.ClassUnknown, "why is required", false},
		{404, `{"code":"unknown_sink"}`, true, false, hongbao.ClassUnknown, "unknown_sink", false},
		{404, `{"code":"unknown_letter","detail":"gone"}`, false, false, hongbao.ClassPermanent, "unknown_letter: gone", false},
		{401, `{"code":"unauthorized"}`, false, false, hongbao.ClassPermanent, "unauthorized", false},
		{409, `{"code":"refused","detail":"no"}`, false, false, hongbao.ClassPermanent, "refused: no", false},
		{409, `{"code":"idempotency_key_in_use"}`, false, false, hongbao.ClassTransient, "in_use", true},
		{429, `{"code":"rate_limited"}`, false, false, hongbao.ClassTransient, "rate_limited", true},
		{503, `{"code":"frozen","instance":"abc"}`, false, true, hongbao.ClassTransient, "request abc", true},
		{502, `<html>`, false, false, hongbao.ClassPermanent, "502 Bad Gateway", false},
		{302, ``, false, false, hongbao.ClassPermanent, "302 Found", false},
		{200, `<html>`, false, false, hongbao.ClassPermanent, "not JSON", false},
	} {
		t.Run(fmt.Sprint(c.status, c.text), func(t *testing.T) {
			t.Parallel()
			r, n := at(t, says(c.status, c.text))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := r.ListSinks(ctx)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, "GET http://127.0.0.1")
			require.Equal(t, c.input, IsInput(err))
			require.Equal(t, c.outage, hongbao.IsOutage(err))
			require.Equal(t, c.sentMoreThanOne, n.Load() > 1)
			if !c.input {
				require.Equal(t, c.class, hongbao.ClassOf(err))
			}
		})
	}
}

// The key is never sent to another server, not even by a redirect.
func TestKeyGoesToTheServerOnly(t *testing.T) {
	t.Parallel()
	elsewhere, asked := at(t, says(200, `{}`))
	r, _ := at(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.server.String(), http.StatusTemporaryRedirect)
	})
	_, err := r.ListSinks(t.Context())
	require.ErrorContains(t, err, "307")
	require.Zero(t, asked.Load())
	for _, server := range []string{"", "control", "http://control:8081", "ftp://127.0.0.1", "https://", "https://a/b",
		"https://u:p@a", "https://a?x=1", "https://a#x", "http://10.0.0.1:8081", "%"} {
		_, err := NewRemote(server, "hb_key", nil)
		require.Error(t, err, server)
	}
	for _, server := range []string{"https://control:8081", "https://control:8081/", "http://localhost:1", "http://[::1]:1"} {
		_, err := NewRemote(server, "hb_key", nil)
		require.NoError(t, err, server)
	}
	_, err = NewRemote("https://control", "", nil)
	require.ErrorContains(t, err, "hongbao key create")
}

// The server's certificate must be signed by the given CA.
func TestCertificateIsChecked(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(says(200, `{"sinks":[],"unrecorded":[]}`))
	t.Cleanup(s.Close)
	s.Config.ErrorLog = nil
	stranger, err := NewRemote(s.URL, "hb_key", nil)
	require.NoError(t, err)
	_, err = stranger.ListSinks(t.Context())
	require.ErrorContains(t, err, "--server-ca")
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	known, err := NewRemote(s.URL, "hb_key", pool)
	require.NoError(t, err)
	_, err = known.ListSinks(t.Context())
	require.NoError(t, err)
}

// If letters remain that a person must look at, the report comes with an error.
func TestRefusedLettersAreFound(t *testing.T) {
	t.Parallel()
	r, _ := at(t, says(200, `{"decision":"requeued","matched":2,"resolved":1,"failed":1,"failures":[],"next":null}`))
	in := Requeue{Letters: Letters{Letter: "kafka/0/1-0,kafka/0/2-0", Why: "again"}}
	report, err := r.RequeueLetters(t.Context(), in)
	require.NoError(t, err)
	var found app.AttentionError
	require.ErrorAs(t, in.Refused(report), &found)
}
