package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"

	"github.com/hongbao-project/hongbao/internal/base/keyset"
	"github.com/hongbao-project/hongbao/internal/base/plural"
	"github.com/hongbao-project/hongbao/internal/configs"
)

// mostAnswer is the maximum size of a response that is read, in bytes.
const mostAnswer = 1 << 20

// examineRemote checks that the remote balance system responds. It sends no token, so any response is fine.
func (a *App) examineRemote(ctx context.Context, p *part) {
	if a.Config.Settlement.Kind != configs.SettleRemote || !a.Has(configs.SinkBalance) {
		return
	}
	rc := a.Config.RemoteConfig()
	p.answers(ctx, LevelProblem, "remote.url", rc.URL, rc.TLS)
}

// examineWebhooks checks the settings of each webhook, and that its receiver can be reached. It posts nothing.
func (a *App) examineWebhooks(ctx context.Context, p *part) {
	for _, sink := range a.Config.WebhookSinks() {
		h, err := a.newWebhook(sink)
		if p.wrong(err) {
			continue
		}
		if err := h.Check(ctx); err != nil {
			p.notThere(LevelProblem, "webhook."+sink+".url", err)
		} else {
			p.add(LevelOK, "the receiver of sink %s can be reached; no event was sent", sink)
		}
		h.Close()
	}
}

// examineCollector checks that the collector of traces responds. It only warns, because without the collector only
// spans are lost.
func (a *App) examineCollector(ctx context.Context, p *part) {
	if url := a.Config.Tracing.Endpoint; url != "" {
		p.answers(ctx, LevelWarning, "tracing.endpoint", url, nil)
	}
}

// answers checks that the server at a knob's URL responds. If it does not, answers adds a finding with the given level.
func (p *part) answers(ctx context.Context, level, knobName, url string, with *tls.Config) {
	if _, err := get(ctx, url, with); err != nil {
		p.notThere(level, knobName, err)
		return
	}
	p.add(LevelOK, "%s answers", url)
}

func (p *part) notThere(level, knobName string, err error) {
	p.add(level, "%v; check that it runs and that %s names it", err, knobName)
}

// examineKeys reads the key set of serve.keys as the server does.
func (a *App) examineKeys(ctx context.Context, p *part) {
	at := a.Config.Serve.Keys
	if at == "" {
		return
	}
	var text []byte
	var err, noSecrets error
	if file := a.Config.ServeKeyFile(); file == nil {
		text, err = get(ctx, a.Config.Serve.KeysURL(), nil)
		noSecrets = keyset.ErrSecret
	} else {
		var open string
		if text, open, err = file(); open != "" {
			noSecrets = fmt.Errorf("it is a secret, but %s", open)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return // the file is on the servers' machines
	}
	if err != nil {
		p.notThere(LevelProblem, "serve.keys", err)
		return
	}
	set, err := keyset.Read(text, noSecrets)
	for _, why := range set.Skipped {
		p.add(LevelWarning, "serve.keys: %s has a key that can't be used: %v", at, why)
	}
	switch {
	case err != nil:
		p.add(LevelProblem, "serve.keys: %s: %v; check it", at, err)
	case set.Usable == 0:
		p.add(LevelProblem, "serve.keys: %s has no keys that can be used", at)
	default:
		p.add(LevelOK, "%s has %s", at, plural.Of(set.Usable, "usable key"))
	}
}

// get returns the response body of a URL. It does not follow redirects.
func get(ctx context.Context, url string, with *tls.Config) ([]byte, error) {
	client := http.Client{
		Transport:     &http.Transport{TLSClientConfig: with, Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	res, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	defer res.Body.Close()
	if res.StatusCode >= http.StatusInternalServerError {
		return nil, fmt.Errorf("ask %s: it answers %s", url, res.Status)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, mostAnswer))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	return text, nil
}
