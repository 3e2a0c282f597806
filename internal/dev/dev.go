// Package dev is the development server. It runs a whole deployment on this machine until it is stopped or its demo
// is over.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/group"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/dev/faults"
	"github.com/hongbao-project/hongbao/internal/dev/local"
	"github.com/hongbao-project/hongbao/internal/front/serve"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/ops/apikeys"
	"github.com/hongbao-project/hongbao/internal/run"
)

// Dev is one run of the development server.
type Dev struct {
	// Listen is the address of the API. The console uses the next port, and health and metrics on loopback the port
	// after it. Port 0 picks three free ports.
	Listen string
	// DataDir is the folder that keeps the data; if it is empty, no data is kept.
	DataDir string
	// EnvFile is the file to which the addresses and keys are written as shell variables when the server is ready.
	// It is removed when the server stops. If EnvFile is empty, no file is written.
	EnvFile string
	// Crowd is the number of simulated grabs per second.
	Crowd int
	// Demo, if not nil, runs before the server is ready. A run with a demo reads no configuration.
	Demo *Demo
	// Program is the path with which this program was started.
	Program string
	// Flags may set configuration keys.
	Flags *pflag.FlagSet
	// Handlers open the sinks of the user's own that this program has.
	Handlers map[string]configs.OpenHandler
	// In, if not nil, is a terminal from which key presses cause faults.
	In io.Reader
	// Out gets the messages.
	Out io.Writer
	// Ready is called when the server is ready.
	Ready func(*Site) error

	local *local.Deployment
	say   local.Say
	links links
}

// keyNote is the note of every API key that this command creates. It finds the keys of an earlier run.
const keyNote = "hongbao dev"

// Run serves until ctx ends, or until the demo is over and Demo.Keep is false.
func (d *Dev) Run(ctx context.Context) (err error) {
	knobs, err := d.knobs()
	if err != nil {
		return err
	}
	if err := clearEnv(d.EnvFile); err != nil {
		return err
	}
	env := os.Environ()
	if d.Demo != nil {
		env, d.Demo.started = local.ForeignEnv(), time.Now()
		defer func() { err = d.Demo.stopped(ctx, err) }()
	}
	d.say = local.SayTo(d.Out)
	d.local, err = local.Open(ctx, &local.Options{DataDir: d.DataDir, Knobs: knobs, Flags: d.Flags, Env: env, Say: d.say,
		Handlers: d.Handlers})
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer func() { err = errors.Join(err, d.local.Close()) }()
	d.local.Describe(d.Out)
	return d.local.Workers.While(ctx, func(ctx context.Context) error {
		return d.local.With(ctx, func(a *app.App) error { return d.run(ctx, a) })
	})
}

// knobs returns the configuration keys whose values differ from those of `hongbao serve`.
func (d *Dev) knobs() (map[string]string, error) {
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
		"serve.listen": at(host, 0), "control.listen": at(host, 1), "serve.ops_listen": at("127.0.0.1", 2),
		"serve.facts": "device=gateway:device", "serve.drain_delay": "0s", "serve.drain_timeout": "5s",
	}, nil
}

// ownPorts names the flag of this command in the error about a port, because it sets the knobs of all three listeners.
func ownPorts(err error) error {
	var busy *web.ListenError
	if errors.As(err, &busy) {
		return fmt.Errorf("listen on %s: %w; check that no other process uses it, or choose three other ports with --listen "+
			"HOST:PORT", busy.Address, busy.Cause)
	}
	return err
}

// unlessStopped returns err, or nil if ctx has ended.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// serving is a server that accepts requests.
type serving struct {
	*app.App
	at      run.Addresses
	grabber serve.Grabber
	faults  *faults.Faults
}

// run serves and runs the workers.
func (d *Dev) run(ctx context.Context, a *app.App) error {
	if err := d.local.AwaitOpen(ctx, a.Store().Shard(0).OpenHead); err != nil {
		return unlessStopped(ctx, err)
	}
	direct := d.local.DirectRedis()
	defer direct.Close()
	broken, err := faults.Of(d.local, direct, d.say)
	if err != nil {
		return err
	}
	defer broken.Close()
	ctx, end := context.WithCancel(ctx)
	defer end()
	listening := make(chan *serving, 1)
	with := run.Serving{
		Control: true,
		Guard:   func(h http.Handler) http.Handler { return checkHost(d.Listen, a.Log(), d.links.guard(h)) },
		Ready:   func(at run.Addresses, g serve.Grabber) { listening <- &serving{a, at, g, broken} },
		Faults:  broken,
	}
	return group.Run(ctx,
		group.Part{Name: "serve", Run: func(ctx context.Context) error { return ownPorts(run.Serve(ctx, d.local.Config, with)) }},
		group.Part{Name: "ready", Run: func(ctx context.Context) error {
			select {
			case on := <-listening:
				return unlessStopped(ctx, d.ready(ctx, on, end))
			case <-ctx.Done():
				return nil
			}
		}})
}

// ready runs the demo, if there is one, and stops the server after it unless Demo.Keep is set. Otherwise it reports
// that the server is ready and starts the crowd. It returns when ctx ends.
func (d *Dev) ready(ctx context.Context, on *serving, end func()) (err error) {
	if d.Demo != nil {
		if err := d.Demo.run(ctx, d, on); err != nil {
			return err
		}
		if !d.Demo.Keep {
			end()
			<-ctx.Done()
			return nil
		}
	}
	site, err := d.prepare(ctx, on)
	if err != nil {
		return err
	}
	if d.EnvFile != "" {
		text := site.env()
		if err := writeEnv(d.EnvFile, text); err != nil {
			return err
		}
		defer func() {
			d.say("%s", endsEnv(d.EnvFile))
			err = errors.Join(err, removeEnv(d.EnvFile, text))
		}()
	}
	if err := d.Ready(site); err != nil {
		return err
	}
	var both sync.WaitGroup
	if d.Crowd > 0 {
		both.Go(func() { d.rain(ctx, on) })
	}
	if d.In != nil {
		both.Go(func() {
			(&keys{say: d.say, faults: on.faults, link: d.links.next, guests: newGuests(d.say, on)}).run(ctx, d.In)
		})
	} else {
		d.say(noKeys)
	}
	<-ctx.Done()
	both.Wait()
	return nil
}

func (d *Dev) prepare(ctx context.Context, on *serving) (*Site, error) {
	campaign, err := readyCampaign(ctx, on.App, campaignID, "A rain to try")
	if err != nil {
		return nil, err
	}
	before, err := apikeys.Of(on.App).Keys(ctx, false)
	if err != nil {
		return nil, err
	}
	for _, k := range before {
		if k.Note == keyNote {
			if _, err := apikeys.Of(on.App).RevokeKey(ctx, k.ID); err != nil {
				return nil, err
			}
		}
	}
	all := d.local.Config
	cfg := &all.Serve
	site := &Site{API: address(on.at.Public, cfg.Listen, cfg.TLSCert != ""),
		Console: address(on.at.Control, all.Control.Listen, all.Control.TLSCert != ""),
		Metrics: address(on.at.Ops, cfg.OpsListen, false), Campaign: campaign, Config: d.local.ConfigFile,
		Redis: all.Redis.Addrs[0], Kafka: all.Publisher.Brokers[0], Topic: all.Publisher.Topic,
		program: d.Program, mayKeep: d.Demo == nil}
	if d.local.Kept() {
		site.DataDir = d.local.Dir
	}
	for role, text := range map[access.Role]*string{access.RoleTreasurer: &site.Key, access.RoleGateway: &site.GatewayKey} {
		k, err := apikeys.Of(on.App).CreateKey(ctx, access.Key{Role: role, Note: keyNote})
		if err != nil {
			return nil, err
		}
		*text = k.Text
	}
	d.links.open(site.Console, on.at.Control, site.Key)
	site.LogIn = d.links.next()
	return site, nil
}
