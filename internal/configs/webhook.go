package configs

import (
	"crypto/tls"
	"maps"
	"slices"
	"strings"

	"github.com/hongbao-project/hongbao/internal/sinks/webhook"
)

// IsWebhook reports whether a sink of deployment.sinks is a webhook.
func (c *Config) IsWebhook(sink string) bool { return c.has(sink) && c.Webhooks[sink] != nil }

// WebhookSinks returns the webhooks of deployment.sinks, in their order there.
func (c *Config) WebhookSinks() []string {
	return slices.DeleteFunc(slices.Clone(c.Deployment.Sinks), func(sink string) bool { return !c.IsWebhook(sink) })
}

// UnreadSinks returns the sinks of deployment.sinks that can't be read back, in their order there.
func (c *Config) UnreadSinks() []string {
	return slices.DeleteFunc(slices.Clone(c.Deployment.Sinks), func(sink string) bool { return !c.IsWebhook(sink) && !c.IsOwn(sink) })
}

// WebhookSecretEnv returns the variable of a webhook's secret.
func WebhookSecretEnv(sink string) string { return find(webhooks + "." + sink + ".secret").Env() }

// checkWebhooks checks each webhook.
func (l *loader) checkWebhooks(c *Config) {
	c.webhookTLS = map[string]*tls.Config{}
	for _, name := range slices.Sorted(maps.Keys(c.Webhooks)) {
		l.checkWebhook(c, name)
	}
}

func (l *loader) checkWebhook(c *Config, name string) {
	section := webhooks + "." + name
	w := c.Webhooks[name]
	l.checkAttempts(section+".max_attempts", &w.Sink)
	url := section + ".url"
	switch {
	case !l.checkName(c, section, name):
	case l.p.fine(url) && w.URL == "":
		l.bad(url, "it is empty: set the URL to which grants are posted")
	case l.p.fine(url) && strings.HasPrefix(w.URL, "http://") && !slices.Contains(c.Unsafe.Allow, unsafeWebhook):
		l.bad(url, "http would send grants in clear text: set an https URL, or add %s to unsafe.allow", unsafeWebhook)
	}
	if err := webhook.CheckURL(w.URL, w.AllowPrivate); l.p.fine(url) && err != nil {
		l.bad(url, "%v", err)
	}
	for key, secret := range map[string]Secret{".secret": w.Secret, ".previous_secret": w.PreviousSecret} {
		if err := webhook.CheckSecret(secret.Reveal()); secret != "" && err != nil {
			l.bad(section+key, "it %v", err)
		}
	}
	l.order(section+".timeout", w.Timeout, "below consumer.handle_timeout", c.Consumer.HandleTimeout,
		"a request is sent only if its whole time is left", "consumer.handle_timeout")
	c.webhookTLS[name] = l.httpsTLS(section, w.URL, &w.TLS)
}
