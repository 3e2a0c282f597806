package serve

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
)

// granter is a Grabber that grants every grab at once.
type granter struct{}

func (granter) Grab(_ context.Context, g *hongbao.Grab) (hongbao.Answer, error) {
	now := time.Now()
	return hongbao.Answer{Outcome: hongbao.OutcomeGranted, Time: now,
		Receipts: []hongbao.Receipt{{Packet: 1, Amount: 500, Seq: 1, Time: now, RequestID: g.RequestID}}}, nil
}

func (granter) Window(context.Context, string) (model.PublicView, error) {
	return model.PublicView{Currency: "CNY", Now: time.Now()}, nil
}

func (granter) Receipts(context.Context, string, string) (model.Receipts, error) {
	return model.Receipts{}, nil
}

// sink is a ResponseWriter that discards the answer.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header            { return s.header }
func (s *sink) Write(data []byte) (int, error) { return len(data), nil }
func (s *sink) WriteHeader(int)                {}

// BenchmarkGrab measures the cost of a grab with a token between net/http and the producer.
func BenchmarkGrab(b *testing.B) {
	cfg := testConfig()
	cfg.Rate, cfg.Burst = 1_000_000, 1_000_000
	text, err := json.Marshal(map[string]any{"keys": []any{map[string]any{
		"kty": "oct", "kid": "hs", "alg": "HS256", "k": segment.EncodeToString(secret)}}})
	require.NoError(b, err)
	s, err := New(cfg, Deps{Grabber: granter{}, Reader: granter{}, Log: zap.NewNop(),
		KeyFile: func() ([]byte, string, error) { return text, "", nil }})
	require.NoError(b, err)
	require.NoError(b, s.openKeys())
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v1/campaigns/c1/grabs", nil)
	r.Header.Set("Authorization", "Bearer "+hs().sign(b, "u1"))
	r.Header.Set("Content-Type", "application/json")
	body := `{"request_id":"r1"}`
	r.ContentLength = int64(len(body))
	b.ReportAllocs()
	for b.Loop() {
		w := sink{http.Header{}}
		r.Body = reader{strings.NewReader(body)}
		s.public.ServeHTTP(&w, r)
	}
}

type reader struct{ *strings.Reader }

func (reader) Close() error { return nil }
