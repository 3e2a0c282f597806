package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

var foundScript = newDrainScript("found").with(unguarded)

// SchemaVersion is the version of the key layout. A deployment also stores lowestSchema: a build can use the layout
// if its SchemaVersion is at least that. So an older build works with a newer build's layout until lowestSchema
// exceeds the older build's version. Until the first release a change of the layout raises both, and no number is used
// again: version 1 belongs to builds that were never released.
const (
	SchemaVersion = 2
	lowestSchema  = 2
)

// Fields that name the owner, in the prefix's hash and in each shard's meta.
const (
	deploymentField = "deployment"
	shardsField     = "shards"
	foundingField   = "founding"
	schemaField     = "schema"
	lowestField     = "lowest"
	openedField     = "opened"
	historyField    = "history" // the server's master_replid when the shard was opened
)

// ErrNotInitialized says that a Redis has no deployment under the key prefix, or an incomplete one. Errors that wrap it
// are Broken.
var ErrNotInitialized = errors.New("it is not founded")

// Owner names the deployment that owns a Redis. It never changes.
type Owner struct {
	Deployment string // its id
	// Founding is a random text that the ledger chose when the deployment was initialized. It distinguishes
	// deployments with the same id. It is empty if there is no ledger.
	Founding string
}

// ShardOwner is the record of one shard's owner in Redis.
type ShardOwner struct {
	Owner
	Epoch int64
	// Opened is the token of the server for which the shard was opened last.
	Opened string

	shards string // number of shards of the deployment
}

// InitializeCall has the arguments of Initialize.
type InitializeCall struct {
	Deployment, Founding string // see Mark
	// Epochs has the first epoch of each shard; nil means 1 for all.
	Epochs []int64
}

// Initialize records the owner of the prefix, and of each shard that has no owner yet. It fails as Broken if existing
// keys have a different deployment, founding or number of shards. It also fails if a shard has lost its meta but not
// its stream.
//
// Initialize does not notice if Redis has lost everything. Only the ledger shows that, so the caller must check the
// ledger first.
func (s *Store) Initialize(ctx context.Context, c InitializeCall) error {
	m := Owner{Deployment: c.Deployment, Founding: c.Founding}
	// The prefix comes first, because its record has the number of shards. The names of the shards' keys depend on
	// that number: with a wrong number, existing shards would seem absent.
	if err := s.PutMark(ctx, m); err != nil {
		return err
	}
	for i, k := range s.shards {
		epoch := int64(1)
		if c.Epochs != nil {
			epoch = c.Epochs[i]
		}
		server, err := k.server(ctx)
		if err == nil {
			err = s.putMark(ctx, m, []string{k.Keys.Meta(), k.Keys.Events()},
				[]any{seqField, 0, epochField, epoch, "finished", 0, openedField, server.RunID, "shard", i, historyField,
					server.ReplID})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// PutMark records the owner of the prefix, but not of the shards.
func (s *Store) PutMark(ctx context.Context, m Owner) error {
	return s.putMark(ctx, m, []string{s.Deployment()},
		[]any{schemaField, SchemaVersion, lowestField, lowestSchema})
}

// putMark records the owner in the first key. The second key is the shard's stream; it is absent for the prefix.
func (s *Store) putMark(ctx context.Context, m Owner, keys []string, fields []any) error {
	reply, err := foundScript.runPlain(ctx, s.rdb, keys, append([]any{m.Deployment, s.Len(), m.Founding}, fields...))
	switch {
	case err != nil:
		return err
	case len(reply) == 3 && reply[0] == "differs":
		return differs(keys[0], reply[1], reply[2], map[string]string{
			deploymentField: m.Deployment, shardsField: strconv.Itoa(s.Len()), foundingField: m.Founding}[reply[1]])
	case len(reply) == 1 && reply[0] == "lost":
		return hongbao.Errorf(hongbao.ClassBroken,
			"redis key %s is gone, and the shard's stream %s is there: created again, it would assign old seqs to new grants, "+
				"which no sink would take. Put the key back from a backup; its seq and epoch must not be below those of the "+
				"stream's last entry. Do not delete the stream: the done bits would stay", keys[0], keys[len(keys)-1])
	}
	return nil
}

func differs(key, field, has, want string) error {
	what := "use another deployment.key_prefix"
	if field == foundingField {
		what = "let ledger.dsn name the ledger that this Redis was founded with"
	}
	return hongbao.Errorf(hongbao.ClassBroken,
		"redis key %s belongs to something else: its %s is %q, and not %q; point redis.addrs to the right Redis, or %s",
		key, field, has, want, what)
}

func (k *Shard) server(ctx context.Context) (Server, error) {
	node, err := k.Node(ctx)
	if err != nil {
		return Server{}, err
	}
	server, err := info(ctx, node)
	if err != nil {
		return Server{}, fmt.Errorf("the server of shard %d: %w", k.Index(), err)
	}
	return server, nil
}

// ReadMark returns the owner of the prefix and the number of shards. found is false if Redis has no such record.
func (s *Store) ReadMark(ctx context.Context) (m Owner, shards int, found bool, err error) {
	has, err := s.rdb.HGetAll(ctx, s.Deployment()).Result()
	if err != nil {
		return Owner{}, 0, false, fmt.Errorf("read %s: %w", s.Deployment(), Classify(err))
	}
	if len(has) == 0 {
		return Owner{}, 0, false, nil
	}
	if err := s.checkSchema(has); err != nil {
		return Owner{}, 0, false, err
	}
	shards, err = strconv.Atoi(has[shardsField])
	if err != nil {
		return Owner{}, 0, false, differs(s.Deployment(), shardsField, has[shardsField], strconv.Itoa(s.Len()))
	}
	return Owner{Deployment: has[deploymentField], Founding: has[foundingField]}, shards, true, nil
}

// checkSchema returns an error if this build can't use the key layout.
func (s *Store) checkSchema(has map[string]string) error {
	key := s.Deployment()
	version, err := strconv.Atoi(has[schemaField])
	lowest, err2 := strconv.Atoi(has[lowestField])
	switch {
	case err != nil || err2 != nil:
		return differs(key, schemaField, has[schemaField], strconv.Itoa(SchemaVersion))
	case lowest > SchemaVersion:
		return hongbao.Errorf(hongbao.ClassBroken,
			"redis key %s has schema version %d, which needs a build of version %d or later; this build has %d: "+
				"upgrade this program", key, version, lowest, SchemaVersion)
	case version < SchemaVersion:
		return hongbao.Errorf(hongbao.ClassBroken,
			"redis key %s has schema version %d, the keys of a build before the first release, which no release reads: "+
				"releases begin with version %d. Nothing was changed. Choose another deployment.id and deployment.key_prefix, "+
				"or delete the keys that begin with \"%s:\" if nobody needs them",
			key, version, SchemaVersion, s.Space().Prefix)
	}
	return nil
}

// ReadShards returns the owner's record of each shard, nil for a shard without one. If some servers do not answer,
// the error names their shards, and the result still has the other shards.
func (s *Store) ReadShards(ctx context.Context) ([]*ShardOwner, error) {
	out, down, err := s.readShards(ctx)
	if err != nil {
		return out, fmt.Errorf("read the meta of %s: %w", numbers(down), err)
	}
	return out, nil
}

// numbers formats the numbers of shards for an error.
func numbers(list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("shard %d", list[0])
	}
	return "shards " + strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ", "), "[]")
}

// readShards reads the owner's record of each shard. down lists the shards whose server does not answer, and err is
// the first of their errors.
func (s *Store) readShards(ctx context.Context) (out []*ShardOwner, down []int, err error) {
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.SliceCmd, s.Len())
	for i := range cmds {
		cmds[i] = pipe.HMGet(ctx, s.shards[i].Keys.Meta(), deploymentField, foundingField, epochField, openedField,
			shardsField)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out = make([]*ShardOwner, len(cmds))
	for i, cmd := range cmds {
		v, failed := cmd.Result()
		if failed != nil {
			if down = append(down, i); err == nil {
				err = Classify(failed)
			}
			continue
		}
		if v[0] == nil && v[2] == nil {
			continue
		}
		text := func(j int) string { t, _ := v[j].(string); return t }
		epoch, failed := strconv.ParseInt(text(2), 10, 64)
		if failed != nil {
			return out, []int{i}, hongbao.Errorf(hongbao.ClassBroken, "the epoch in redis key %s is %.40q, which is not a number: "+
				"find out who can write to Redis", s.shards[i].Keys.Meta(), text(2))
		}
		out[i] = &ShardOwner{Owner: Owner{Deployment: text(0), Founding: text(1)}, Epoch: epoch, Opened: text(3), shards: text(4)}
	}
	return out, down, err
}

// Open checks that the Redis belongs to the store's deployment, that this build can use its key layout, and that no shard is
// missing. It writes nothing. The caller must compare the returned Founding with that of the ledger. If the
// deployment is missing or incomplete, err is Broken and wraps ErrNotInitialized. If some nodes of a cluster do not
// answer, down names their shards. The caller may continue then: only calls that need these shards fail.
func (s *Store) Open(ctx context.Context) (m Owner, down error, err error) { // two errors: down does not stop the caller
	m, n, found, err := s.ReadMark(ctx)
	all, silent, failed := s.readShards(ctx)
	_, cluster := s.rdb.(*redis.ClusterClient)
	if some := cluster && len(silent) < len(all) && hongbao.IsOutage(failed); some {
		down = hongbao.Outagef(hongbao.ClassTransient, "the cluster's node of %s does not answer: %w", numbers(silent),
			failed)
		failed = nil
		if hongbao.IsOutage(err) { // the silent node may also have the prefix's record; each shard has a copy
			m, n, found, err = s.markOf(all)
		}
	}
	switch {
	case err != nil:
		return m, down, err
	case !found:
		return m, down, s.notInitialized()
	case m.Deployment != s.id:
		return m, down, differs(s.Deployment(), deploymentField, m.Deployment, s.id)
	case n != s.Len():
		return m, down, differs(s.Deployment(), shardsField, strconv.Itoa(n), strconv.Itoa(s.Len()))
	case failed != nil:
		return m, down, fmt.Errorf("read the meta of %s: %w", numbers(silent), failed)
	}
	for i, has := range all {
		switch key := s.shards[i].Keys.Meta(); {
		case has == nil && slices.Contains(silent, i):
		case has == nil:
			return m, down, hongbao.Errorf(hongbao.ClassBroken,
				"%w to the end, or Redis has lost shard %d (redis key %s). If `hongbao init` was killed, run it again; "+
					"else %s", ErrNotInitialized, i, key, afterLoss)
		case has.Owner != m:
			return m, down, differs(key, foundingField, has.Founding, m.Founding)
		}
	}
	s.found.Store(true)
	return m, down, nil
}

// notInitialized returns the error for a Redis without a deployment under the prefix.
func (s *Store) notInitialized() error {
	return hongbao.Errorf(hongbao.ClassBroken, "%w: this Redis has no deployment under redis key %s. If redis.addrs and "+
		"deployment.key_prefix name the right one, Redis has lost it: %s", ErrNotInitialized, s.Deployment(), afterLoss)
}

// markOf returns the owner and the number of shards from the first shard that has a record. All shards record the
// same.
func (s *Store) markOf(all []*ShardOwner) (m Owner, shards int, found bool, err error) {
	for i, has := range all {
		if has == nil {
			continue
		}
		if shards, err = strconv.Atoi(has.shards); err != nil {
			err = differs(s.shards[i].Keys.Meta(), shardsField, has.shards, strconv.Itoa(s.Len()))
		}
		return has.Owner, shards, true, err
	}
	return m, 0, false, nil
}
