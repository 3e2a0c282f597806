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
	// DataDir is the folder that keeps the data. If it is empty, a temporary folder is used, which Close
	// removes.
	DataDir string
	// Knobs are configuration keys and their values. They override the values that this package sets.
	Knobs map[string]string
	// Flags and Env may set further configuration keys, but not the addresses of servers. Flags may be nil. The
	// workers get both.
	Flags *pflag.FlagSet
	Env   []string
	// Handlers open the sinks of the user's own that this program has. They are sinks of the deployment, too.
	Handlers map[string]configs.OpenHandler
	// Say prints progress messages.
	Say Say
}

// workers is the number of workers. restartDelay is how long a worker stays down after its end. It is longer than a
// lease, so that other workers take over its entries.
const (
	workers      = 3
	restartDelay = 8 * time.Second
)

// Deployment is an initialized deployment whose servers run. The caller starts the workers with Workers.While.
type Deployment struct {
	// Dir is the folder of all files. ConfigFile is in it; pass it to other commands as --config.
	Dir, ConfigFile string
	Config          *configs.Config
	Servers         *Servers
	Workers         *Workers

	folder *folder
	say    Say
	epoch  int64 // of the shard, if an earlier run initialized the deployment; else 0
}

// Open starts the servers and initializes the deployment, unless an earlier run has done so. Close stops the
// servers. Close ends everything.
func Open(ctx context.Context, o *Options) (*Deployment, error) {
	redisPath, err := findRedis(o.DataDir != "")
	if err != nil {
		return nil, err
	}
	own := &Deployment{Servers: &Servers{}, say: o.Say}
	if own.folder, err = openFolder(o.DataDir); err != nil {
		return nil, err
	}
	if err = own.folder.checkBuild(ctx); err == nil {
		err = own.open(ctx, redisPath, o)
	}
	if err != nil {
		return nil, errors.Join(err, own.Close())
	}
	return own, nil
}

// open starts the parts that Close stops.
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
	d.Workers = NewWorkers(WorkersConfig{Program: self, Args: args, Env: o.Env, Folder: d.Dir, Rest: restartDelay, Say: o.Say})
	return d.initialize(ctx)
}

// initialize initializes the deployment, unless an earlier run has done so.
func (d *Deployment) initialize(ctx context.Context) error {
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

// Kept reports whether Close keeps the folder.
func (d *Deployment) Kept() bool { return d.folder.kept }

// Close stops the servers. Call it only after the workers have ended.
func (d *Deployment) Close() error { return errors.Join(d.Servers.close(), d.folder.close()) }

// With runs do with an App that is connected to Redis and the ledger.
func (d *Deployment) With(ctx context.Context, do func(a *app.App) error) error {
	return app.With(ctx, d.Config, app.Needs{Redis: true, Ledger: true}, do)
}

// frozenPatience is how long a shard may be frozen before the user is told how to find the cause.
const frozenPatience = 20 * time.Second

// AwaitOpen waits until a worker has opened the shard after a restart of Redis; openHead reads the shard. Each opening
// begins a new epoch, so AwaitOpen waits for an epoch newer than the one at the start.
func (d *Deployment) AwaitOpen(ctx context.Context, openHead func(context.Context) (store.Head, error)) error {
	if d.epoch == 0 {
		return nil
	}
	d.say("Redis was restarted, so its shard is frozen until a worker has compared it with the ledger and the " +
		"topic; that takes some seconds")
	report := time.AfterFunc(frozenPatience, func() {
		d.say("The shard is still frozen; `hongbao recover --config %s` shows why, and what to do", d.ConfigFile)
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

// DirectRedis returns a client that bypasses the proxy, so that it works during faults. The caller closes it.
func (d *Deployment) DirectRedis() redis.UniversalClient {
	cfg := *d.Config
	cfg.Redis.Addrs = []string{d.Servers.direct}
	return cfg.RedisClient()
}

// Describe prints the servers and their addresses.
func (d *Deployment) Describe(w io.Writer) {
	if path := d.Servers.RedisPath; path != "" {
		fmt.Fprintf(w, "redis     %s at %s, appendonly yes\n", path, d.Servers.Redis.Addr)
	} else {
		fmt.Fprintln(w, "redis     miniredis, in this process: no redis-server is on the PATH. Its counts of "+
			"deliveries and\n          idle times differ from those of Redis: use it for trials only")
	}
	fmt.Fprintf(w, "kafka     kfake, in this process, topic %s\nledger    SQLite in %s\n", topicName, d.Dir)
}

// own are the prefixes of configuration keys that only this package may set, because it starts the servers.
var own = []string{"deployment.", "redis.", "ledger.", "settlement.", "remote.", "kafka.", "serve.listen",
	"control.listen", "control.ops_listen", "serve.ops_listen", "work.ops_listen"}

// configure writes the configuration file and reads it. Leases and timeouts are short, so that other workers take
// over a killed worker's grants within seconds.
func (d *Deployment) configure(o *Options) error {
	set := map[string]string{
		"redis.addrs": d.Servers.Redis.Addr, "redis.read_timeout": "900ms", "redis.pool_timeout": "900ms",
		"ledger.driver": "sqlite", "ledger.dsn": filepath.Join(d.Dir, ledgerName),
		"kafka.brokers": d.Servers.Kafka.Addr, "kafka.partitions": strconv.Itoa(partitions),
		"consumer.lease": "3s", "consumer.poll": "200ms", "consumer.block": "200ms", "consumer.batch_grants": "500",
		"publisher.request_timeout": "1s", "publisher.attempt_time": "2s", "publisher.max_claim_age": "2s",
		"log.level": "error",
	}
	if len(o.Handlers) > 0 {
		names := slices.Sorted(maps.Keys(o.Handlers))
		set["deployment.sinks"] = strings.Join(append([]string{configs.SinkBalance, configs.SinkKafka}, names...), ",")
		for _, name := range names {
			set["own."+name+".program"] = "this program"
		}
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
	d.Config.Handlers = o.Handlers
	return d.checkEnv()
}

// addFlags adds the configuration keys that were given as flags, so that the workers get them too.
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
		return app.Usage("%s: this command starts servers of its own and chooses the sinks, and --listen names its address; leave it out", strings.Join(refused, ", "))
	}
	return nil
}

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

// checkEnv returns an error if the environment sets a server's address. Other commands in the same shell would use
// that server instead of this deployment. It also refuses unsafe.allow, because this package sets that key, and a
// flag can add to it.
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
	return app.Usage("%s: this command starts servers of its own and chooses the sinks; unset it (unsafe.allow can be a flag)",
		strings.Join(found, ", "))
}

func isOwn(knob string) bool {
	return slices.ContainsFunc(own, func(section string) bool { return strings.HasPrefix(knob, section) })
}
