package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/configs"
)

// Options configure a Deployment.
type Options struct {
	// DataDir is the folder that keeps the data; empty: a temporary folder, which Close removes.
	DataDir string
	// Workers is the number of workers; Rest is how long a worker that has ended stays down.
	Workers int
	Rest    time.Duration
	// Knobs are set by the caller, by name. They override those that this package sets.
	Knobs map[string]string
	// Flags and Env may set more knobs, but not the servers' addresses; Flags may be nil. The workers get both.
	Flags *pflag.FlagSet
	Env   []string
	// Tell reports what happens.
	Tell *Teller
}

// Deployment is founded and running, except for its workers: the caller runs Workers.Run.
type Deployment struct {
	// Dir has all files. ConfigFile is one of them: every command takes it as --config.
	Dir, ConfigFile string
	Config          *configs.Config
	Servers         *Servers
	Workers         *Workers

	folder *folder
	tell   *Teller
	before bool  // an earlier start founded it
	epoch  int64 // of the shard then
}

// Open starts the servers and founds the deployment, or finds it founded. Close ends everything.
func Open(ctx context.Context, o *Options) (*Deployment, error) {
	redisPath, err := findRedis(o.DataDir != "")
	if err != nil {
		return nil, err
	}
	own := &Deployment{Servers: &Servers{}, tell: o.Tell}
	if own.folder, err = openFolder(o.DataDir); err != nil {
		return nil, err
	}
	if err := own.open(ctx, redisPath, o); err != nil {
		return nil, errors.Join(err, own.Close())
	}
	return own, nil
}

// open starts the parts that Close ends.
func (d *Deployment) open(ctx context.Context, redisPath string, o *Options) (err error) {
	d.Dir = d.folder.path
	d.ConfigFile = filepath.Join(d.Dir, "hongbao.yaml")
	if d.Servers, err = startServers(ctx, redisPath, d.folder); err != nil {
		return err
	}
	if err := d.configure(o); err != nil {
		return err
	}
	d.Workers = newWorkers(d, o)
	return d.found(ctx)
}

// found founds the deployment, or finds it founded.
func (d *Deployment) found(ctx context.Context) error {
	err := app.With(ctx, d.Config, app.Needs{}, func(a *app.App) error {
		did, err := a.Init(ctx)
		d.before = err == nil && did.Redis.Before > 0
		return err
	})
	if err != nil || !d.before {
		return err
	}
	var lost app.FoundError
	if d.epoch, _, err = d.state(ctx); errors.As(err, &lost) {
		return nil // AwaitOpen says so
	}
	return err
}

// Kept reports whether the folder is kept after Close.
func (d *Deployment) Kept() bool { return d.folder.kept }

// Close stops the servers. Workers must have ended.
func (d *Deployment) Close() error { return errors.Join(d.Servers.close(), d.folder.close()) }

// With opens Redis and the ledger for do.
func (d *Deployment) With(ctx context.Context, do func(a *app.App) error) error {
	return app.With(ctx, d.Config, app.Needs{Redis: true, Ledger: true}, do)
}

// AwaitOpen waits until the workers have opened the shard. They have to when Redis was restarted with its old data.
func (d *Deployment) AwaitOpen(ctx context.Context) error {
	if !d.before {
		return nil
	}
	d.tell.Say("Redis was restarted, so its shard is frozen until a worker has compared it with the ledger and the " +
		"topic; that takes some seconds")
	return d.awaitOpen(ctx, d.state)
}

// awaitOpen reads the state until the shard is open. It reports once a problem that another attempt may solve.
func (d *Deployment) awaitOpen(ctx context.Context, state func(context.Context) (int64, bool, error)) error {
	const lost, unknown = "lost", "unknown"
	var told string
	return retry.Poll(ctx, 500*time.Millisecond, func() (open bool, err error) {
		epoch, frozen, err := state(ctx)
		if err == nil {
			return !frozen && epoch > d.epoch, nil
		}
		var found app.FoundError
		switch {
		case errors.As(err, &found):
			if told != lost {
				d.tell.Say("Redis has lost something; `hongbao recover --config %s` says what, and how to go on", d.ConfigFile)
			}
			told = lost
		case ctx.Err() == nil && retry.MayHelp(err):
			if told != unknown {
				d.tell.Say("Nobody can tell yet how the shard stands; the next try comes soon: %v", err)
			}
			told = unknown
		default:
			return false, err
		}
		return false, nil
	})
}

// state returns the epoch of the shard, and whether it is frozen. Each opening begins another epoch.
func (d *Deployment) state(ctx context.Context) (epoch int64, frozen bool, err error) {
	err = app.With(ctx, d.Config, app.Needs{}, func(a *app.App) error {
		r, err := a.Recover(ctx, app.RecoverOptions{})
		if r != nil {
			for _, v := range r.Shards {
				epoch, frozen = v.Epoch, v.Frozen
			}
		}
		return err
	})
	return epoch, frozen, err
}

// Working runs the workers beside do, and has them drain when do has returned. If no worker can be started, the context
// of do ends.
func (d *Deployment) Working(ctx context.Context, do func(context.Context) error) error {
	doing, cancel := context.WithCancel(ctx)
	defer cancel()
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- d.Workers.Run(working)
		cancel()
	}()
	err := do(doing)
	stop()
	return errors.Join(err, <-ended)
}

// Describe writes which servers there are, and their addresses.
func (d *Deployment) Describe(w io.Writer) {
	if path := d.Servers.RedisPath; path != "" {
		fmt.Fprintf(w, "redis     %s at %s, appendonly yes\n", path, d.Servers.Redis)
	} else {
		fmt.Fprintln(w, "redis     miniredis, in this process: no redis-server is on the PATH. It counts deliveries and "+
			"idle times\n          differently: for looking, not for money")
	}
	fmt.Fprintf(w, "kafka     kfake, in this process, topic %s\nledger    SQLite in %s\n", topicName, d.Dir)
}

// own are the prefixes of the knobs that a deployment sets by itself, because its servers are its own.
var own = []string{"deployment.", "redis.", "ledger.", "settlement.", "remote.", "kafka.", "serve.listen",
	"serve.control_listen", "serve.ops_listen", "work.ops_listen"}

// configure writes the configuration file and reads it. Times are short, so that other workers take over a killed
// worker's grants within seconds.
func (d *Deployment) configure(o *Options) error {
	set := map[string]string{
		"redis.addrs": d.Servers.Redis, "redis.read_timeout": "900ms", "redis.pool_timeout": "900ms",
		"ledger.driver": "sqlite", "ledger.dsn": filepath.Join(d.Dir, "ledger.db"),
		"kafka.brokers": d.Servers.Kafka, "kafka.partitions": strconv.Itoa(partitions),
		"consumer.lease": "3s", "consumer.poll": "200ms", "consumer.block": "200ms", "consumer.batch_grants": "500",
		"publisher.request_timeout": "1s", "publisher.attempt_time": "2s", "publisher.max_claim_age": "2s",
		"log.level": "error",
	}
	maps.Copy(set, o.Knobs)
	if err := addFlags(set, o.Flags); err != nil {
		return err
	}
	if d.Servers.mini != nil {
		allow := []string{configs.UnsafeRedis, configs.UnsafeRedisRunID}
		if more := set["unsafe.allow"]; more != "" {
			allow = append(allow, more)
		}
		set["unsafe.allow"] = strings.Join(allow, ",")
	}
	if err := d.write(set); err != nil {
		return err
	}
	var err error
	if d.Config, err = configs.Load(d.ConfigFile, o.Env, nil); err != nil {
		return err
	}
	return d.checkEnv()
}

// addFlags sets the knobs that are given as flags, so that the workers also have them.
func addFlags(set map[string]string, flags *pflag.FlagSet) error {
	if flags == nil {
		return nil
	}
	var refused []string
	flags.Visit(func(f *pflag.Flag) {
		switch {
		case isOwn(f.Name), f.Name == "config":
			refused = append(refused, "--"+f.Name)
		case strings.Contains(f.Name, "."):
			set[f.Name] = f.Value.String()
		}
	})
	if len(refused) > 0 {
		return app.Usage("%s: this command starts servers of its own, and --listen names their address; leave it out", strings.Join(refused, ", "))
	}
	return nil
}

// write writes the configuration file.
func (d *Deployment) write(knobs map[string]string) error {
	file := map[string]map[string]string{}
	for name, value := range knobs {
		section, key, _ := strings.Cut(name, ".")
		if file[section] == nil {
			file[section] = map[string]string{}
		}
		file[section][key] = value
	}
	text, err := yaml.Marshal(file)
	if err == nil {
		err = os.WriteFile(d.ConfigFile, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the configuration file: %w", err)
	}
	return nil
}

// checkEnv refuses an environment that names other servers: commands that people run beside this one would use those
// servers. unsafe.allow comes from flags here, since miniredis needs more.
func (d *Deployment) checkEnv() error {
	var found []string
	for _, s := range d.Config.Settings() {
		if (isOwn(s.Name) || s.Name == "unsafe.allow") && s.Source != "default" &&
			!strings.HasPrefix(s.Source, d.ConfigFile+":") {
			found = append(found, fmt.Sprintf("%s (%s)", s.Name, s.Source))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return app.Usage("%s: this command starts servers of its own; unset it (unsafe.allow can be a flag)",
		strings.Join(found, ", "))
}

func isOwn(knob string) bool {
	return slices.ContainsFunc(own, func(section string) bool { return strings.HasPrefix(knob, section) })
}
