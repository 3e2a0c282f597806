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

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/store"
)

// Options configure a Deployment.
type Options struct {
	// DataDir is the folder that keeps the data; empty: a temporary folder, which Close removes.
	DataDir string
	// Knobs are set by the caller, by name. They override those that this package sets.
	Knobs map[string]string
	// Flags and Env may set more knobs, but not the servers' addresses; Flags may be nil. The workers get both.
	Flags *pflag.FlagSet
	Env   []string
	// Say reports what happens.
	Say Say
}

// workers is their number. rest is how long a worker that has ended stays down: longer than a lease, so that others
// take over.
const (
	workers = 3
	rest    = 8 * time.Second
)

// Deployment is founded and running, except for its workers: the caller runs Workers.While.
type Deployment struct {
	// Dir has all files. ConfigFile is one of them: every command takes it as --config.
	Dir, ConfigFile string
	Config          *configs.Config
	Servers         *Servers
	Workers         *Workers

	folder *folder
	say    Say
	epoch  int64 // of the shard, if an earlier start founded it; else 0
}

// Open starts the servers and founds the deployment, or finds it founded. Close ends everything.
func Open(ctx context.Context, o *Options) (*Deployment, error) {
	redisPath, err := findRedis(o.DataDir != "")
	if err != nil {
		return nil, err
	}
	own := &Deployment{Servers: &Servers{}, say: o.Say}
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
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	args := slices.Repeat([][]string{{"work", "--config", d.ConfigFile}}, workers)
	d.Workers = NewWorkers(WorkersConfig{Program: self, Args: args, Env: o.Env, Folder: d.Dir, Rest: rest, Say: o.Say})
	return d.found(ctx)
}

// found founds the deployment, or finds it founded.
func (d *Deployment) found(ctx context.Context) error {
	return app.With(ctx, d.Config, app.Needs{}, func(a *app.App) error {
		did, err := a.Init(ctx)
		if err != nil || did.Redis.Before == 0 {
			return err
		}
		head, err := a.Store().Shard(0).Head(ctx)
		d.epoch = head.Epoch
		return err
	})
}

// Kept reports whether the folder is kept after Close.
func (d *Deployment) Kept() bool { return d.folder.kept }

// Close stops the servers. Workers must have ended.
func (d *Deployment) Close() error { return errors.Join(d.Servers.close(), d.folder.close()) }

// With opens Redis and the ledger for do.
func (d *Deployment) With(ctx context.Context, do func(a *app.App) error) error {
	return app.With(ctx, d.Config, app.Needs{Redis: true, Ledger: true}, do)
}

// frozenPatience is how long a shard may be frozen before a person should know why.
const frozenPatience = 20 * time.Second

// AwaitOpen waits until the workers have opened the shard, by its OpenHead. They have to when Redis was restarted with
// its old data: each opening begins another epoch.
func (d *Deployment) AwaitOpen(ctx context.Context, openHead func(context.Context) (store.Head, error)) error {
	if d.epoch == 0 {
		return nil
	}
	d.say("Redis was restarted, so its shard is frozen until a worker has compared it with the ledger and the " +
		"topic; that takes some seconds")
	report := time.AfterFunc(frozenPatience, func() {
		d.say("The shard is still frozen; `hongbao recover --config %s` shows why, and how to go on", d.ConfigFile)
	})
	defer report.Stop()
	return retry.Poll(ctx, 500*time.Millisecond, func() (bool, error) {
		head, err := openHead(ctx)
		if err != nil && ctx.Err() == nil && retry.MayHelp(err) {
			return false, nil
		}
		return head.Epoch > d.epoch, err
	})
}

// DirectRedis returns a client without a proxy, for watching the effect of faults. The caller closes it.
func (d *Deployment) DirectRedis() redis.UniversalClient {
	cfg := *d.Config
	cfg.Redis.Addrs = []string{d.Servers.direct}
	return cfg.RedisClient()
}

// Describe writes which servers there are, and their addresses.
func (d *Deployment) Describe(w io.Writer) {
	if path := d.Servers.RedisPath; path != "" {
		fmt.Fprintf(w, "redis     %s at %s, appendonly yes\n", path, d.Servers.Redis.Addr)
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
		"redis.addrs": d.Servers.Redis.Addr, "redis.read_timeout": "900ms", "redis.pool_timeout": "900ms",
		"ledger.driver": "sqlite", "ledger.dsn": filepath.Join(d.Dir, "ledger.db"),
		"kafka.brokers": d.Servers.Kafka.Addr, "kafka.partitions": strconv.Itoa(partitions),
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
