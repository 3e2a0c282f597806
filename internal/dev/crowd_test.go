package dev

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/dev/local"
)

// reply is what an API gives: a status and a body, or nothing at all.
type reply struct {
	status int
	body   string
	err    error
}

// replies come one after another; the last one again and again.
type replies []reply

func (r *replies) RoundTrip(*http.Request) (*http.Response, error) {
	next := (*r)[0]
	if len(*r) > 1 {
		*r = (*r)[1:]
	}
	if next.err != nil {
		return nil, next.err
	}
	return &http.Response{StatusCode: next.status, Status: fmt.Sprintf("%d %s", next.status, http.StatusText(next.status)),
		Body: io.NopCloser(strings.NewReader(next.body))}, nil
}

func status(code int, body string) reply { return reply{status: code, body: body} }

func outcome(o hongbao.Outcome) reply {
	return status(http.StatusOK, fmt.Sprintf(`{"results": [{"answer": {"outcome": %q}}]}`, o))
}

func fails(err error) reply { return reply{err: err} }

// crowded runs a crowd of one user a second for a minute, and gives what it told.
func crowded(t *testing.T, open func(id string) error, of ...reply) (told string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out bytes.Buffer
		a := replies(of)
		c := &crowd{size: 1, api: "http://api", tell: local.NewTeller(&out), client: &http.Client{Transport: &a},
			open: func(_ context.Context, id string) (hongbao.Campaign, bool, error) {
				return hongbao.Campaign{ID: id, Currency: "CNY"}, false, open(id)
			}}
		c.run(ctx)
		told = out.String()
	})
	return told
}

func opens(string) error { return nil }

// What hinders the crowd is told once, until it changes; then the crowd goes on.
func TestCrowdTellsTrouble(t *testing.T) {
	t.Parallel()
	const busy = `{"results": [{"problem": {"code": "busy", "detail": "send it again"}}]}`
	refused := fails(errors.New("connection refused"))
	told := crowded(t, opens, status(503, "later"), status(503, "still"), refused, refused, status(200, busy),
		status(200, busy), outcome(hongbao.OutcomeGranted), status(503, "again"), outcome(hongbao.OutcomeGranted))
	require.Equal(t, 2, strings.Count(told, "503"), told)
	require.Equal(t, 1, strings.Count(told, "connection refused"), told)
	require.Equal(t, 1, strings.Count(told, "busy: send it again"), told)
	require.Equal(t, 2, strings.Count(told, "gets on again"), told)

	told = crowded(t, opens, outcome(hongbao.OutcomePaused), outcome(hongbao.OutcomePaused), outcome(hongbao.OutcomeGranted))
	require.Equal(t, 1, strings.Count(told, "campaign crowd-1 is paused"), told)
	require.NotContains(t, told, "crowd-2")

	tries := 0
	told = crowded(t, func(string) error {
		if tries++; tries < 5 {
			return hongbao.Heldf("the ledger is busy")
		}
		return nil
	}, outcome(hongbao.OutcomeGranted))
	require.Equal(t, 1, strings.Count(told, "the ledger is busy"), told)
	require.Contains(t, told, "gets on again")
}

// A campaign that is over is followed by the next one.
func TestCrowdGoesOn(t *testing.T) {
	t.Parallel()
	for name, over := range map[string]reply{
		"sold out": outcome(hongbao.OutcomeSoldOut), "ended": outcome(hongbao.OutcomeEnded),
		"unknown": status(200, `{"results": [{"problem": {"code": "unknown_campaign"}}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := crowded(t, opens, over, outcome(hongbao.OutcomeGranted))
			require.Contains(t, told, "campaign crowd-2")
			require.NotContains(t, told, "crowd-3")
		})
	}
}

// Where nothing can help the crowd says why it ends.
func TestCrowdGivesUp(t *testing.T) {
	t.Parallel()
	for part, answer := range map[string]reply{
		"401 Unauthorized": status(401, "who are you"),
		"unknown signer":   fails(&tls.CertificateVerificationError{Err: errors.New("unknown signer")}),
	} {
		told := crowded(t, opens, answer, outcome(hongbao.OutcomePaused))
		require.Contains(t, told, "The crowd gives up")
		require.Contains(t, told, part)
		require.NotContains(t, told, "paused")
	}
	told := crowded(t, func(string) error { return hongbao.Errorf(hongbao.ClassPermanent, "no such table") },
		outcome(hongbao.OutcomeGranted))
	require.Contains(t, told, "The crowd gives up: no such table")
}

// The crowd trusts the server's own certificate, and no other one.
func TestCrowdTrusts(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	ask := func(cert string) error {
		client, err := crowdClient(cert)
		require.NoError(t, err)
		t.Cleanup(client.CloseIdleConnections)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
		require.NoError(t, err)
		res, err := client.Do(r)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
	file := filepath.Join(t.TempDir(), "cert.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600))
	require.NoError(t, ask(file))
	var unknown *tls.CertificateVerificationError
	require.ErrorAs(t, ask(""), &unknown)
}
