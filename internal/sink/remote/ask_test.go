package remote

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

func TestCredited(t *testing.T) {
	t.Parallel()
	b := newBank(t)
	h := newHandler(t, b, newBooks())
	require.Nil(t, h.Handle(t.Context(), grants(3, 3)))
	got, found, err := h.Credited(t.Context(), "rain", 3)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, Booked{Account: "u3", Currency: "CNY", Amount: 103}, got)
	_, found, err = h.Credited(t.Context(), "rain", 4)
	require.NoError(t, err)
	require.False(t, found)
	blind := newHandler(t, b, newBooks(), repeats)
	_, _, err = blind.Credited(t.Context(), "rain", 3)
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
}

// An inconclusive response is queried again. It never counts as "no such credit".
func TestCreditedWrongAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"another 404": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte("404 page not found"))
		},
		"HTML": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"truncated": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"reference":"prod:rain:3","acc`))
		},
		"no amount": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"reference":"prod:rain:3","account":"u3","currency":"CNY"}`))
		},
		"another credit": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"reference":"prod:rain:4","account":"u3","currency":"CNY","amount":103}`))
		},
		"no answer": func(w http.ResponseWriter, _ *http.Request) { drop(w) },
	} {
		b := newBank(t)
		good, lies := b.Config.Handler, atomic.Int64{}
		b.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if lies.Add(1) <= 2 {
				answer(w, r)
				return
			}
			good.ServeHTTP(w, r)
		})
		b.book(credit{Reference: "prod:rain:3", Account: "u3", Currency: "CNY", Amount: 103})
		h := newHandler(t, b, newBooks())
		got, found, err := h.Credited(t.Context(), "rain", 3)
		require.NoError(t, err, name)
		require.True(t, found, name)
		require.EqualValues(t, 103, got.Amount, name)
		require.EqualValues(t, 3, lies.Load(), "%s: two inconclusive answers and a good one", name)
		lies.Store(-10)
		_, _, err = h.Credited(t.Context(), "rain", 3)
		require.True(t, hongbao.IsOutage(err), "%s: %v", name, err)
	}
}
