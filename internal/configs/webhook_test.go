package configs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each webhook has its own settings, from the file and from variables.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	const one, old = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "whsec_b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xkLW9sZC0="
	c := (&input{yaml: `
deployment: {id: shop, sinks: [balance, crm, kafka, sms2]}
consumer: {max_attempts: 9}
webhook:
  crm: {url: "https://crm.example.com/hongbao", max_calls: 3, grants_per_second: 50, blocks_grabs: true}
  sms2: {url: "https://sms.example.com"}
`, env: []string{"HONGBAO_WEBHOOK_CRM_SECRET=" + one, "HONGBAO_WEBHOOK_CRM_PREVIOUS_SECRET=" + old,
		"HONGBAO_WEBHOOK_SMS2_MAX_ATTEMPTS=4"}}).must(t)

	crm := c.WebhookConfig("crm")
	require.Equal(t, "https://crm.example.com/hongbao", crm.URL)
	require.Equal(t, one, crm.Secret)
	require.Equal(t, old, crm.PreviousSecret)
	require.Equal(t, "shop", crm.Deployment)
	require.Nil(t, crm.TLS)
	require.Empty(t, c.WebhookConfig("sms2").Secret)

	require.Equal(t, "crm", c.ConsumerConfig("crm").Group)
	require.Equal(t, 3, c.ConsumerConfig("crm").MaxCalls)
	require.Equal(t, 50, c.ConsumerConfig("crm").GrantsPerSecond)
	require.Equal(t, int64(9), c.ConsumerConfig("crm").MaxAttempts)
	require.Equal(t, int64(4), c.ConsumerConfig("sms2").MaxAttempts)
	require.Equal(t, []string{"balance", "crm", "kafka", "sms2"}, c.TrimmerConfig().Groups)
	require.Equal(t, []string{"sms2"}, c.TrimmerConfig().MayLag)
	require.True(t, c.IsWebhook("crm"))
	require.False(t, c.IsWebhook("kafka"))

	var shown []string
	for _, s := range c.Settings() {
		if k := find(s.Name); k.sink == "crm" && (strings.HasSuffix(s.Name, ".url") || k.Secret != "") {
			shown = append(shown, s.Name+"="+s.Value)
		}
	}
	require.Equal(t, []string{"webhook.crm.url=https://crm.example.com/hongbao", "webhook.crm.secret=***",
		"webhook.crm.previous_secret=***"}, shown)
}
