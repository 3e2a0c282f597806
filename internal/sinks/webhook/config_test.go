package webhook

import (
	"crypto/tls"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/base/knob"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	cfg := knob.Defaults[Config]()
	require.Equal(t, Config{ConnectTimeout: 2 * time.Second, Timeout: 15 * time.Second, Concurrency: 32,
		MaxRetryAfter: time.Minute, BreakerFailures: 50, BreakerOpen: 5 * time.Second}, cfg)
	cfg.URL, cfg.Secret, cfg.Deployment = "https://crm.example.com/hooks/hongbao", secret, "prod"
	require.NoError(t, cfg.Check())
}

// Check names every problem at once, and no secret.
func TestCheckConfig(t *testing.T) {
	t.Parallel()
	cfg := Config{Secret: "whsec_c2VjcmV0", PreviousSecret: "c2VjcmV0", TLS: &tls.Config{MinVersion: tls.VersionTLS12}}
	_, err := New(cfg)
	require.Error(t, err)
	for _, want := range []string{"webhook configuration: ", "the URL is empty", "Secret has 6 bytes",
		"PreviousSecret does not begin with whsec_", "Deployment ", "ConnectTimeout is 0s: want 1ms to 1m", "Timeout is 0s",
		"Concurrency is 0", "MaxRetryAfter is 0s",
		"BreakerFailures is 0", "BreakerOpen is 0s"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "c2VjcmV0")

	of := func(size int) string { return secretPrefix + base64.StdEncoding.EncodeToString(make([]byte, size)) }
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no secret":  {func(c *Config) { c.Secret = "" }, "Secret is empty: want whsec_"},
		"not base64": {func(c *Config) { c.Secret = "whsec_" + strings.Repeat("!", 32) }, "Secret is not base64"},
		"too short":  {func(c *Config) { c.Secret = of(23) }, "Secret has 23 bytes"},
		"too long":   {func(c *Config) { c.Secret = of(65) }, "Secret has 65 bytes"},
		"the same":   {func(c *Config) { c.PreviousSecret = c.Secret }, "PreviousSecret is the same as Secret"},
		"a query":    {func(c *Config) { c.URL += "?token=x" }, "URL want http(s)://"},
		"plain":      {func(c *Config) { c.TLS = &tls.Config{MinVersion: tls.VersionTLS12} }, "does not begin with https://"},
		"deployment": {func(c *Config) { c.Deployment = `a"b` }, "Deployment "},
	} {
		cfg := testConfig("http://crm.example.com/hooks")
		require.NoError(t, cfg.Check(), name)
		c.change(&cfg)
		require.ErrorContains(t, cfg.Check(), c.want, name)
	}
}
