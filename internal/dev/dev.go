// Package dev is the development server: a deployment of its own on this machine that serves until it is stopped.
package dev

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/group"
	"github.com/hongbao-project/hongbao/internal/dev/faults"
	"github.com/hongbao-project/hongbao/internal/dev/local"
	"github.com/hongbao-project/hongbao/internal/front/serve"
	"github.com/hongbao-project/hongbao/internal/run"
)

// Dev is one run of the development server.
type Dev struct {
	// Listen is the address of the API. The console has the next port, health and metrics the one after that, on loopback;
	// port 0 takes three free ones.
	Listen string
	// DataDir keeps the data; empty: no data is kept.
	DataDir string
	// EnvFile, if not empty, gets the addresses and keys as variables of a shell, once all is ready. The end removes
	// it.
	EnvFile string
	// Crowd is how many simulated users grab each second.
	Crowd int
	// Program is the path by which this program was called.
	Program string
	// Flags may set knobs.
	Flags *pflag.FlagSet
	// In, if not nil, is a terminal whose keys cause faults.
	In io.Reader
	// Out gets the messages.
	Out io.Writer
	// Ready is called once all is ready.
	Ready func(*Site) error

	local *local.Deployment
	tell  *local.Teller
	// mayKeep reports whether the command has --data-dir.
	mayKeep bool
}

const (
	workers = 3
	// rest is how long a worker that has ended stays down: longer than a lease, so that others take over.
	rest = 8 * time.Second
	// keyNote marks the API keys of this command.
	keyNote = "hongbao dev"
)

// Run serves until ctx ends.
func (d *Dev) Run(ctx context.Context) (err error) {
	knobs, err := d.Knobs()
	if err != nil {
		return err
	}
	if err := clearEnv(d.EnvFile); err != nil {
		return err
	}
	d.tell, d.mayKeep = local.NewTeller(d.Out), true
	d.local, err = local.Open(ctx, &local.Options{DataDir: d.DataDir, Workers: workers, Rest: rest, Knobs: knobs,
		Flags: d.Flags, Env: os.Environ(), Tell: d.tell})
	if err != nil {
		return stopped(ctx, err)
	}
	defer func() { err = errors.Join(err, d.local.Close()) }()
	d.local.Describe(d.Out)
	return d.local.Working(ctx, func(ctx context.Context) error { return d.Stay(ctx, d.local, d.tell) })
}

// Stay serves on a deployment that has the Knobs and whose workers are running, until ctx ends.
func (d *Dev) Stay(ctx context.Context, on *local.Deployment, tell *local.Teller) error {
	d.local, d.tell = on, tell
	return d.local.With(ctx, func(a *app.App) error { return d.run(ctx, a) })
}

// Knobs returns the knobs that differ from those of `hongbao serve`.
func (d *Dev) Knobs() (map[string]string, error) {
	host, port, err := net.SplitHostPort(d.Listen)
	first, errPort := strconv.ParseUint(port, 10, 16)
	if err != nil || errPort != nil || first > 65533 {
		return nil, app.Usage("--listen %.80q: want host:port, as 127.0.0.1:8080, with two more ports behind it", d.Listen)
	}
	if d.Crowd < 0 || d.Crowd > maxCrowd {
		return nil, app.Usage("--crowd %d: want 0 to %d users a second", d.Crowd, maxCrowd)
	}
	at := func(host string, n uint64) string {
		if first > 0 {
			n += first
		} else {
			n = 0
		}
		return net.JoinHostPort(host, strconv.FormatUint(n, 10))
	}
	return map[string]string{
		"serve.listen": at(host, 0), "serve.control_listen": at(host, 1), "serve.ops_listen": at("127.0.0.1", 2),
		"serve.facts": "device=gateway:device", "serve.drain_delay": "0s", "serve.drain_timeout": "5s",
	}, nil
}

// run serves while the workers work.
func (d *Dev) run(ctx context.Context, a *app.App) error {
	if err := d.local.AwaitOpen(ctx); err != nil {
		return stopped(ctx, err)
	}
	site, err := d.prepare(ctx, a)
	if err != nil {
		return stopped(ctx, err)
	}
	direct := d.local.DirectRedis()
	defer direct.Close()
	broken, err := faults.Of(d.local, direct, d.tell)
	if err != nil {
		return err
	}
	defer broken.Close()
	listening := make(chan serve.Addresses, 1)
	with := run.Serving{
		Guard:  func(h http.Handler) http.Handler { return checkHost(d.Listen, a.Log(), h) },
		Ready:  func(at serve.Addresses) { listening <- at },
		Faults: broken,
	}
	parts := []group.Part{
		{Name: "serve", Run: func(ctx context.Context) error { return run.Serve(ctx, d.local.Config, with) }},
		{Name: "ready", Run: func(ctx context.Context) error { return d.ready(ctx, a, site, listening) }},
	}
	if d.In != nil {
		k := &keys{tell: d.tell, cause: broken.Cause, cut: broken.IsCut}
		parts = append(parts, group.Part{Name: "keys", Run: func(ctx context.Context) error { return k.run(ctx, d.In) }})
	}
	return group.Run(ctx, parts...)
}

// stopped returns nil for an error that the end of ctx caused.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// prepare makes the campaign and the keys.
func (d *Dev) prepare(ctx context.Context, a *app.App) (*Site, error) {
	spec, err := readyCampaign(ctx, a)
	if err != nil {
		return nil, err
	}
	before, err := a.Keys(ctx, false)
	if err != nil {
		return nil, err
	}
	for _, k := range before {
		if k.Note == keyNote {
			if _, err := a.RevokeKey(ctx, k.ID); err != nil {
				return nil, err
			}
		}
	}
	site := &Site{Campaign: spec.ID, Config: d.local.ConfigFile, program: d.Program,
		mayKeep: d.mayKeep}
	if d.local.Kept() {
		site.DataDir = d.local.Dir
	}
	for role, text := range map[access.Role]*string{access.RoleTreasurer: &site.Key, access.RoleGateway: &site.GatewayKey} {
		k, err := a.CreateKey(ctx, access.Key{Role: role, Note: keyNote})
		if err != nil {
			return nil, err
		}
		*text = k.Text
	}
	return site, nil
}

// ready reports that all is ready, and starts the crowd.
func (d *Dev) ready(ctx context.Context, a *app.App, site *Site, listening <-chan serve.Addresses) (err error) {
	select {
	case at := <-listening:
		site.name(&d.local.Config.Serve, at)
	case <-ctx.Done():
		return nil
	}
	if d.EnvFile != "" {
		text := site.env()
		if err := writeEnv(d.EnvFile, text); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, removeEnv(d.EnvFile, text)) }()
	}
	if err := d.Ready(site); err != nil {
		return err
	}
	if d.Crowd == 0 {
		<-ctx.Done()
		return nil
	}
	client, err := crowdClient(d.local.Config.Serve.TLSCert)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	c := crowd{size: d.Crowd, api: site.API, key: site.GatewayKey, tell: d.tell, client: client,
		open: func(ctx context.Context, id string) (hongbao.Campaign, bool, error) { return openOnce(ctx, a, id) }}
	c.run(ctx)
	<-ctx.Done()
	return nil
}
