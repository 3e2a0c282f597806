package testkit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// RedisOptions configure a Redis.
type RedisOptions struct {
	// Args are settings in redis.conf; they override the defaults below.
	Args map[string]string
	// ReplicaOf, if not nil, makes the server a replica of another server.
	ReplicaOf *RedisServer
	// Cluster makes the server a node of a Redis Cluster, at first without slots; see StartRedisCluster.
	Cluster bool
	// Watches, if not nil, makes the server a sentinel for a master and its replicas. The sentinel knows the
	// master by the name SentinelName.
	Watches *RedisServer
	// Quorum is how many sentinels must agree that the master is down; 0 stands for one.
	Quorum int
	// Dir is the folder of the data, which Close keeps. If it is empty, the server gets a folder that Close
	// removes.
	Dir string
	// Binary is the name of the program, for servers that are compatible with Redis. Empty: redis-server.
	Binary string
}

// redisDefaults returns the settings that Hongbao requires: no eviction, and an append-only file. With appendfsync
// everysec, Redis may delay a write for up to two seconds while the disk is busy. So a test that kills Redis and
// needs all of its data must set appendfsync always.
func redisDefaults() map[string]string {
	return map[string]string{
		"bind":                        "127.0.0.1",
		"appendonly":                  "yes",
		"appendfsync":                 "everysec",
		"save":                        `""`,
		"maxmemory-policy":            "noeviction",
		"auto-aof-rewrite-percentage": "0",
		"repl-diskless-sync-delay":    "0",
		"daemonize":                   "no",
	}
}

// RedisProgram is an installed server program that is compatible with Redis.
type RedisProgram struct {
	Name, Version string
	Path          string // empty if the program is not installed
}

// RedisPrograms returns the servers with which Hongbao is tested: the one in PATH, and the two that
// `scripts/setup.sh servers` downloads.
func RedisPrograms(ctx context.Context) ([]RedisProgram, error) {
	base, err := fetched()
	if err != nil {
		return nil, err
	}
	list := []RedisProgram{{Name: "Redis"}, {Name: "Redis 8"}, {Name: "Valkey 9"}}
	list[0].Path, err = program("redis-server", "/usr/sbin", "/usr/local/bin")
	list[1].Path = filepath.Join(base, "servers", "redis-8", "redis-server")
	list[2].Path = filepath.Join(base, "servers", "valkey-9", "valkey-server")
	for i := range list {
		p := &list[i]
		output, failed := exec.CommandContext(ctx, p.Path, "--version").Output()
		name, rest, _ := strings.Cut(string(output), " server v=")
		if p.Version, _, _ = strings.Cut(rest, " "); failed != nil || p.Version == "" {
			p.Path = ""
			continue
		}
		p.Name = name
	}
	return list, err
}

// EachRedis runs a test on each server of RedisPrograms. It skips a server that is not installed; make test-servers
// installs all, and runs these tests.
func EachRedis(t *testing.T, test func(t *testing.T, program string)) {
	t.Helper()
	for _, p := range running(t, func() ([]RedisProgram, error) { return RedisPrograms(t.Context()) }) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			if p.Path == "" {
				t.Log("why the test is skipped: run scripts/setup.sh servers")
				t.Skip("needs a server")
			}
			test(t, p.Path)
		})
	}
}

// RedisServer is a running redis-server.
type RedisServer struct {
	// Addr is host:port. A restart keeps it.
	Addr string
	bus  int // the port of a cluster node for the other nodes
	server
}

// StartRedis starts a Redis. It returns when the server answers. The caller closes it.
func StartRedis(ctx context.Context, opts RedisOptions) (*RedisServer, error) {
	name := opts.Binary
	if name == "" {
		name = "redis-server"
	}
	path, err := program(name, "/usr/sbin", "/usr/local/bin")
	if err != nil {
		return nil, err
	}
	r := &RedisServer{}
	r.server = server{name: "redis", dir: opts.Dir, keep: opts.Dir != "", ports: 2}
	r.ready = r.answers
	r.prepare = func(ports []int) (command, error) {
		r.Addr, r.bus = loopback(ports[0]), ports[1]
		conf := filepath.Join(r.dir, "redis.conf")
		err := os.WriteFile(conf, []byte(redisConf(r.dir, ports, opts)), 0o600)
		args := []string{conf}
		if opts.Watches != nil {
			args = append(args, "--sentinel")
		}
		return command{path: path, args: args, dir: r.dir}, err
	}
	if err := r.launch(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

func redisConf(dir string, ports []int, opts RedisOptions) string {
	if opts.Watches != nil {
		return sentinelConf(dir, ports[0], opts)
	}
	args := redisDefaults()
	args["dir"] = strconv.Quote(dir)
	args["port"] = strconv.Itoa(ports[0])
	if opts.Cluster {
		maps.Copy(args, clusterNode(ports[1]))
	}
	if opts.ReplicaOf != nil {
		host, masterPort, _ := net.SplitHostPort(opts.ReplicaOf.Addr) // loopback built the address, so it is valid
		args["replicaof"] = host + " " + masterPort
	}
	maps.Copy(args, opts.Args)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(args)) {
		fmt.Fprintf(&b, "%s %s\n", name, args[name])
	}
	return b.String()
}

// Options returns client options for tests: no retries, and contexts end commands.
func (r *RedisServer) Options() *redis.Options {
	return &redis.Options{
		Addr:                     r.Addr,
		MaxRetries:               -1,
		DialerRetries:            1,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// Client returns a client of the server; change may change the options. It is closed when the test ends.
func (r *RedisServer) Client(t testing.TB, change ...func(*redis.Options)) *redis.Client {
	t.Helper()
	o := r.Options()
	for _, f := range change {
		f(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Errorf("close the client of redis at %s: %v", r.Addr, err)
		}
	})
	return c
}

// answers returns an error unless this server answers. Another server on the same port is an error.
func (r *RedisServer) answers(ctx context.Context) error {
	// Check the port before the client is used, because the client would log a server that is not reachable.
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.Addr)
	if err != nil {
		return fmt.Errorf("connect to redis: %w", err)
	}
	_ = conn.Close() // this connection was only a check
	c := redis.NewClient(r.Options())
	defer c.Close()
	if err := c.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("ping redis at %s: %w", r.Addr, err)
	}
	info, err := c.InfoMap(ctx, "server").Result()
	if err != nil {
		return fmt.Errorf("ask redis at %s who it is: %w", r.Addr, err)
	}
	if got := info["Server"]["process_id"]; got != strconv.Itoa(r.Pid()) {
		return fmt.Errorf("redis at %s is process %s, want %d: %w", r.Addr, got, r.Pid(), errStranger)
	}
	return nil
}

// setting returns the value of a setting of the server.
func (r *RedisServer) setting(ctx context.Context, name string) (string, error) {
	c := redis.NewClient(r.Options())
	defer c.Close()
	all, err := c.ConfigGet(ctx, name).Result()
	if err != nil {
		return "", fmt.Errorf("read the setting %s of redis at %s: %w", name, r.Addr, err)
	}
	return all[name], nil
}

// says repeats a command until the answer contains all parts.
func (r *RedisServer) says(ctx context.Context, question string, parts ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return poll(ctx, r.current(), func(ctx context.Context) error {
		text, err := r.order(ctx, words(question)...)
		for _, part := range parts {
			if err == nil && !strings.Contains(text, part) {
				err = fmt.Errorf("%s at %s: no %s: %w", question, r.Addr, part, errNotYet)
			}
		}
		return err
	})
}

// words splits a command into its arguments. An argument can't contain a space.
func words(command string) (order []any) {
	for _, word := range strings.Fields(command) {
		order = append(order, word)
	}
	return order
}

// order sends a command to the server.
func (r *RedisServer) order(ctx context.Context, args ...any) (string, error) {
	client := redis.NewClient(r.Options())
	defer client.Close()
	text, err := client.Do(ctx, args...).Text()
	if err != nil {
		return "", fmt.Errorf("%v at %s: %w", args, r.Addr, err)
	}
	return text, nil
}

// Order sends a command to the server. The command's words are separated by spaces. It returns the answer,
// which must be a text.
func (r *RedisServer) Order(t testing.TB, command string) string {
	t.Helper()
	return must(t, func() (string, error) { return r.order(t.Context(), words(command)...) })
}

// Says repeats a command until the answer contains all parts.
func (r *RedisServer) Says(t testing.TB, question string, parts ...string) {
	t.Helper()
	if err := r.says(t.Context(), question, parts...); err != nil {
		t.Fatalf("testkit: %v", err)
	}
}
