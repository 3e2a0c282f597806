package run

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/configs"
)

// Health is the state that a long-lived process reports.
type Health struct {
	Command string `json:"command"`
	Status  string `json:"status"`
}

// healthTime bounds the request. It can be short, because /readyz does not wait for other servers.
const healthTime = 5 * time.Second

// opsListeners returns the configuration key and the address of the ops listener of each command that has one.
func opsListeners(cfg *configs.Config) map[string][2]string {
	return map[string][2]string{
		"serve":   {"serve.ops_listen", cfg.Serve.OpsListen},
		"control": {"control.ops_listen", cfg.Control.OpsListen},
		"work":    {"work.ops_listen", cfg.Work.OpsListen},
		"balance": {"balance.ops_listen", cfg.Balance.OpsListen},
	}
}

// CheckHealth asks the ops listener of a command on this machine whether the process is ready.
func CheckHealth(ctx context.Context, cfg *configs.Config, command string) (*Health, error) {
	knob, ok := opsListeners(cfg)[command]
	if !ok {
		return nil, app.Usage("health of %.40q: want one of %s", command, strings.Join(HealthCommands(), ", "))
	}
	name, address := knob[0], knob[1]
	if address == "" {
		return nil, app.Usage("%s is empty, so there is no listener to check: set it to the same address for hongbao %s and for "+
			"this command", name, command)
	}
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	// A client that connects to 0.0.0.0 or [::] reaches this machine.
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		return nil, app.Usage("%s: %w", name, err)
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, hongbao.Outagef(hongbao.ClassTransient,
			"check whether hongbao %s at %s (%s) is ready: %w; check that it runs with this configuration", command, address, name, err)
	}
	defer res.Body.Close()
	h := &Health{Command: command}
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<16)).Decode(h); err != nil || h.Status == "" {
		return nil, hongbao.Errorf(hongbao.ClassPermanent,
			"check %s (%s): HTTP status %d without a status of hongbao %s: another program listens there", address, name,
			res.StatusCode, command)
	}
	if res.StatusCode != http.StatusOK {
		return nil, hongbao.Outagef(hongbao.ClassTransient, "hongbao %s at %s is not ready: %.200s", command, address, h.Status)
	}
	return h, nil
}

// HealthCommands returns the commands that CheckHealth accepts.
func HealthCommands() []string {
	return slices.Sorted(maps.Keys(opsListeners(&configs.Config{})))
}
