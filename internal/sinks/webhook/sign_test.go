package webhook

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

// The signature is the one that the library makes, with the smallest and the largest key.
func TestSignature(t *testing.T) {
	t.Parallel()
	for _, size := range []int{24, 32, 64} {
		s := secretPrefix + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\xfb\xff", size/2)))
		lib, err := standardwebhooks.NewWebhook(s)
		require.NoError(t, err)
		at := time.Unix(1_674_087_231, 999)
		want, err := lib.Sign("rain-1", at, []byte(`{"a":1}`))
		require.NoError(t, err)
		h := http.Header{}
		newSigner(s, "").sign(h, "rain-1", at, []byte(`{"a":1}`))
		require.Equal(t, http.Header{"Webhook-Id": {"rain-1"}, "Webhook-Timestamp": {"1674087231"}, "Webhook-Signature": {want}}, h)
	}
}

// During a change of the secret, receivers with either secret accept the same request. Afterwards, only the new one is
// used.
func TestRotation(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, secret, earlier)
	h := newHandler(t, r, func(c *Config) { c.PreviousSecret = earlier })
	require.Nil(t, h.handle(t.Context(), grants(1, 2)))
	signatures := strings.Split(r.got()[0].header.Get("Webhook-Signature"), " ")
	require.Len(t, signatures, 2)
	for _, s := range signatures {
		require.True(t, strings.HasPrefix(s, "v1,"), s)
	}
	late := newReceiver(t)
	require.Nil(t, newHandler(t, late).handle(t.Context(), grants(1, 1)))
	require.NotContains(t, late.got()[0].header.Get("Webhook-Signature"), " ")
}

// Each try has the time of the try, and the same id and body.
func TestEachTryHasItsOwnSignature(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	h := newHandler(t, r)
	r.set(func(w http.ResponseWriter, _ *http.Request) { drop(w, "") })
	require.NotNil(t, h.handle(t.Context(), grants(1, 1)))
	r.set(nil)
	h.now = func() time.Time { return time.Now().Add(time.Minute) }
	require.Nil(t, h.handle(t.Context(), grants(1, 1)))
	tries := r.got()
	require.Len(t, tries, 2)
	require.Equal(t, tries[0].id, tries[1].id)
	require.Equal(t, tries[0].body, tries[1].body)
	require.Less(t, tries[0].header.Get("Webhook-Timestamp"), tries[1].header.Get("Webhook-Timestamp"))
	require.NotEqual(t, tries[0].header.Get("Webhook-Signature"), tries[1].header.Get("Webhook-Signature"))
}
