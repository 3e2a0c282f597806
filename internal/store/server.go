package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// Server has those properties of a Redis server on which the safety of grants depends.
type Server struct {
	Addr            string // address of a cluster's node; else empty
	Version         string
	Role            string
	MaxMemoryPolicy string
	AppendOnly      bool
	AppendFsync     string // empty if CONFIG GET is not allowed
	Replicas        int
	// MinReplicas is min-replicas-to-write; -1 if CONFIG GET is not allowed.
	MinReplicas int
	Mode        string // standalone, cluster or sentinel
	// RunID changes with each start. ReplID is master_replid, which identifies the server's history of writes.
	// ReplID2 is master_replid2: the history that it continued when it was promoted, or all zeros.
	RunID, ReplID, ReplID2 string
	Uptime                 time.Duration
	// Memory is the used memory, and MaxMemory the limit, both in bytes. MaxMemory is 0 if there is no limit.
	Memory, MaxMemory int64
	// MachineMemory is the memory of the whole machine, which may be above the limit of a container. It is 0 if
	// unknown.
	MachineMemory int64
	// FullCoverage is cluster-require-full-coverage: the node refuses all calls while any slot of the cluster has no
	// server. It is false if CONFIG GET is not allowed. NoServer is the number of slots without a node.
	FullCoverage bool
	NoServer     int
	// WritesFail means that the last snapshot, or the last write or rewrite of the append-only file, failed.
	WritesFail bool
}

// promoted returns the server's present ReplID if the server was ever promoted, else "". ReplID also changes when a
// first replica attaches, but that loses no writes.
func (s *Server) promoted() string {
	if strings.Trim(s.ReplID2, "0") == "" {
		return ""
	}
	return s.ReplID
}

// NoEviction is the only maxmemory-policy that never evicts receipts.
const NoEviction = "noeviction"

// Inspect returns the settings of a Redis server, or of each primary of a cluster. If a primary of a cluster is
// unreachable, Inspect returns its error together with the settings of the others.
func Inspect(ctx context.Context, rdb redis.UniversalClient) ([]Server, error) {
	return askEach(ctx, rdb, inspect)
}

// askEach calls ask for the Redis server, with an empty address. For a cluster it calls ask for each primary.
func askEach[T any](ctx context.Context, rdb redis.UniversalClient,
	ask func(ctx context.Context, rdb redis.Cmdable, addr string) (T, error),
) ([]T, error) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		answer, err := ask(ctx, rdb, "")
		if err != nil {
			return nil, err
		}
		return []T{answer}, nil
	}
	var all []T
	found := make(chan T, 1024)
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		addr := node.Options().Addr
		answer, err := ask(ctx, node, addr)
		if err != nil {
			return fmt.Errorf("node %s: %w", addr, err)
		}
		found <- answer
		return nil
	})
	close(found)
	for answer := range found {
		all = append(all, answer)
	}
	return all, err
}

// info returns the server's answer to INFO.
func info(ctx context.Context, rdb redis.Cmdable) (Server, error) {
	text, err := rdb.Info(ctx).Result()
	if err != nil {
		return Server{}, fmt.Errorf("ask redis for INFO: %w", Classify(err))
	}
	// A primary that is loading its data would report that it has no append-only file. A loading replica is refused
	// later anyway.
	if strings.Contains(text, "\nloading:1") && !strings.Contains(text, "\nrole:slave") {
		return Server{}, hongbao.Outagef(hongbao.ClassTransient, "redis loads its data")
	}
	return parseInfo(text), nil
}

func inspect(ctx context.Context, rdb redis.Cmdable, addr string) (Server, error) {
	s, err := info(ctx, rdb)
	s.Addr = addr
	if err != nil {
		return s, err
	}
	names := []string{"appendfsync", "min-replicas-to-write"}
	if s.Mode == "cluster" {
		names = append(names, "cluster-require-full-coverage")
	}
	config := readConfig(ctx, rdb, names...)
	s.AppendFsync, s.MinReplicas = config["appendfsync"], -1
	if n, err := strconv.Atoi(config["min-replicas-to-write"]); err == nil {
		s.MinReplicas = n
	}
	if s.Mode != "cluster" {
		return s, nil
	}
	s.FullCoverage = config["cluster-require-full-coverage"] == "yes"
	if text, err := rdb.ClusterInfo(ctx).Result(); err == nil {
		_, rest, _ := strings.Cut(text, "cluster_slots_assigned:")
		if n, err := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0])); err == nil {
			s.NoServer = slots - n
		}
	}
	return s, nil
}

// askConfig returns 0 if the connection's user may not run CONFIG GET. CONFIG GET itself would leave an entry in ACL LOG
// each time.
const askConfig = `return redis.acl_check_cmd('CONFIG', 'GET', 'appendfsync') and 1 or 0`

// readConfig returns the named settings. It leaves out the settings that the server lacks, and all of them if the user
// may not run CONFIG GET. It asks for one setting at a time, because Redis before 7 accepts only one name.
func readConfig(ctx context.Context, rdb redis.Cmdable, names ...string) map[string]string {
	out := map[string]string{}
	if may, err := rdb.Eval(ctx, askConfig, nil).Int(); err == nil && may == 0 {
		return out
	}
	for _, name := range names {
		if has, err := rdb.ConfigGet(ctx, name).Result(); err == nil {
			maps.Copy(out, has)
		}
	}
	return out
}

// parseInfo parses the answer to INFO.
func parseInfo(text string) Server {
	info := map[string]string{}
	for line := range strings.SplitSeq(text, "\r\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			info[name] = value
		}
	}
	s := Server{
		Version: info["redis_version"], Role: info["role"], MaxMemoryPolicy: info["maxmemory_policy"],
		AppendOnly: info["aof_enabled"] == "1", Mode: info["redis_mode"],
		RunID: info["run_id"], ReplID: info["master_replid"], ReplID2: info["master_replid2"],
	}
	s.Replicas = onlineReplicas(info)
	uptime, _ := strconv.ParseInt(info["uptime_in_seconds"], 10, 64)
	s.Uptime = time.Duration(uptime) * time.Second
	s.Memory, _ = strconv.ParseInt(info["used_memory"], 10, 64)
	s.MaxMemory, _ = strconv.ParseInt(info["maxmemory"], 10, 64)
	s.MachineMemory, _ = strconv.ParseInt(info["total_system_memory"], 10, 64)
	for _, last := range []string{"aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"} {
		s.WritesFail = s.WritesFail || info[last] == "err"
	}
	return s
}

// onlineReplicas returns the number of replicas that receive each write. Replicas in a full synchronization do not
// count, and neither does a backup by redis-cli --rdb. If INFO has no list of replicas, its count is used.
func onlineReplicas(info map[string]string) (online int) {
	listed := false
	for name, value := range info {
		if strings.HasPrefix(name, "slave") && strings.Contains(value, "state=") {
			listed = true
			if strings.Contains(value, "state=online") {
				online++
			}
		}
	}
	if !listed {
		online, _ = strconv.Atoi(info["connected_slaves"]) // absent on a replica: none
	}
	return online
}

// Check returns an error with all settings that contradict the durability class. It is Broken: the process must not
// use this server.
func (s *Server) Check(class hongbao.Durability) error {
	errs := s.Faults(class)
	if len(errs) == 0 {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassBroken, "this Redis can't keep what durability class %q promises: %w", class,
		errors.Join(errs...))
}

// CheckNow is Check for a running process. During a failover, a primary may have no replicas for a while, or the old
// primary is a replica. So these two faults are outages.
func (s *Server) CheckNow(class hongbao.Durability) error {
	err := s.Check(class)
	settled := *s
	settled.Role, settled.Replicas = "master", max(s.Replicas, 1)
	if err != nil && len(settled.Faults(class)) == 0 {
		return hongbao.Outagef(hongbao.ClassTransient, "%w; a failover may be under way", err)
	}
	return err
}

// Faults returns one error for each setting that contradicts the durability class.
func (s *Server) Faults(class hongbao.Durability) (errs []error) {
	if !s.atLeast(7, 0) {
		errs = append(errs, fmt.Errorf("version %s is too old: use Redis 7.0 or newer", s.Version))
	}
	if s.Role != "master" {
		errs = append(errs, fmt.Errorf("its role is %q: point the configuration to the primary", s.Role))
	}
	if s.MaxMemoryPolicy != NoEviction {
		errs = append(errs, fmt.Errorf("maxmemory-policy is %q and would evict receipts: set it to noeviction",
			s.MaxMemoryPolicy))
	}
	if class == hongbao.DurabilityReplica && s.Replicas == 0 {
		errs = append(errs, errors.New(`no replica is connected, durability class "replica" needs one`))
	}
	if class == hongbao.DurabilityFsync && !s.AppendOnly {
		errs = append(errs, errNoAppendOnly)
	}
	if class == hongbao.DurabilityFsync && s.AppendOnly && s.AppendFsync != "always" && !s.atLeast(7, 2) {
		errs = append(errs, fmt.Errorf("appendfsync is %q and version %s has no WAITAOF (7.2): set appendfsync always for "+
			`durability class "fsync"`, s.AppendFsync, s.Version))
	}
	return errs
}

var errNoAppendOnly = errors.New(
	"appendonly is no, so a restart would forget campaigns and receipts: write appendonly yes into redis.conf (or the " +
		"settings of your provider) and restart it. CONFIG SET appendonly yes does it without a restart, but not on a " +
		"server that has lost its data: that writes an empty file over the one that is left")

// Slow returns an error if the server's settings make grabs of a durability class slow. The error names the setting
// to change.
func (s *Server) Slow(class hongbao.Durability) error {
	if class != hongbao.DurabilityFsync || s.AppendFsync != "everysec" {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassPermanent, `durability class "fsync" with appendfsync everysec: each answer waits for the next write to disk, up `+
		"to a second (1.0 s at the median); set appendfsync always in redis.conf, and by CONFIG SET until the next restart")
}

// FewReplicas returns an error if min-replicas-to-write is below the number of replicas that durability class replica
// waits for. A primary that is partitioned from its replicas would then still grant packets. wanted is that number; 0
// means all connected replicas. FewReplicas returns nil if the setting is unknown.
func (s *Server) FewReplicas(wanted int) error {
	if wanted == 0 {
		wanted = s.Replicas
	}
	if wanted == 0 || s.MinReplicas < 0 || s.MinReplicas >= wanted {
		return nil
	}
	if s.Replicas == 0 {
		return hongbao.Errorf(hongbao.ClassPermanent, "no replica is connected, and durability class replica waits for %d: connect "+
			"a replica first. Only then set min-replicas-to-write %d: without a replica it stops all writes", wanted, wanted)
	}
	return hongbao.Errorf(hongbao.ClassPermanent, "min-replicas-to-write is %d, and durability class replica waits for %d "+
		"replicas: a primary that is cut off from them continues to grant, and those grants are lost. Set "+
		"min-replicas-to-write %d in redis.conf and by CONFIG SET", s.MinReplicas, wanted, wanted)
}

// CheckAppendOnly returns an error of class Broken if the server has no append-only file, whatever the durability
// class.
func (s *Server) CheckAppendOnly() error {
	if s.AppendOnly {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassBroken, "this Redis keeps nothing: %w", errNoAppendOnly)
}

// NeedsWaitAOF reports whether durability class fsync uses WAITAOF. Every Redis from 7.2 on has WAITAOF, and it is
// used there even with appendfsync always, because that setting can change at run time. Older servers must have
// appendfsync always, so that writes are on disk before the reply.
func (s *Server) NeedsWaitAOF() bool { return s.atLeast(7, 2) }

func (s *Server) atLeast(major, minor int) bool {
	a, rest, _ := strings.Cut(s.Version, ".")
	b, _, _ := strings.Cut(rest, ".")
	x, err1 := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	return err1 == nil && err2 == nil && (x > major || x == major && y >= minor)
}
