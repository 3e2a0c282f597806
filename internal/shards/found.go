package shards

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

// SchemaVersion is the version of the key layout. lowestSchema is the first one whose builds can work with it: an older
// build goes on with what a newer one has founded until this rises above its own version.
const (
	SchemaVersion = 1
	lowestSchema  = 1
)

// The fields of the prefix' hash and of meta that say whose they are.
const (
	deploymentField = "deployment"
	shardsField     = "shards"
	foundingField   = "founding"
	schemaField     = "schema"
	lowestField     = "lowest"
	openedField     = "opened"
	historyField    = "history" // the server's master_replid when the shard was opened
)

// ErrNotFounded says that a Redis has no deployment under the key prefix, or only a part of one. Its error is Broken.
var ErrNotFounded = errors.New("it is not founded")

// Mark says whose a Redis is. It never changes.
type Mark struct {
	Deployment string // its id
	// Founding is what the ledger drew when it was founded: it tells the deployment from others with the same id. Empty
	// without a ledger.
	Founding string
}

// Founded is what one shard was founded as.
type Founded struct {
	Mark
	Epoch int64
	// Opened is the token of the server for which the shard was opened last.
	Opened string

	shards string // how many the deployment has
}

// FoundCall is what Found writes.
type FoundCall struct {
	Deployment, Founding string // see Mark
	// Epochs are the shards' first epochs; nil means 1 for all.
	Epochs []int64
}

// Found marks the prefix and those of its shards that are not there yet. It refuses (Broken) keys of another
// deployment, founding or number of shards, and a shard that has lost its meta but not its stream.
//
// It does not see that Redis has lost everything: only the ledger can tell, and who calls Found has asked it.
func Found(ctx context.Context, rdb redis.UniversalClient, layout *Layout, c FoundCall) error {
	m := Mark{Deployment: c.Deployment, Founding: c.Founding}
	// The prefix first: the names of the shards' keys depend on their number, so another number would find nothing there.
	if err := m.Put(ctx, rdb, layout); err != nil {
		return err
	}
	for i := range layout.Len() {
		epoch := int64(1)
		if c.Epochs != nil {
			epoch = c.Epochs[i]
		}
		k := layout.Shard(i)
		server, err := serverOf(ctx, rdb, k)
		if err == nil {
			err = m.put(ctx, rdb, layout, []string{k.Meta(), k.Events()},
				[]any{seqField, 0, epochField, epoch, "finished", 0, openedField, server.RunID, "shard", i, historyField,
					server.ReplID})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Put marks the prefix, and no shard.
func (m Mark) Put(ctx context.Context, rdb redis.UniversalClient, layout *Layout) error {
	return m.put(ctx, rdb, layout, []string{layout.Deployment()},
		[]any{schemaField, SchemaVersion, lowestField, lowestSchema})
}

// put marks the first key; the second one is a shard's stream.
func (m Mark) put(ctx context.Context, rdb redis.Scripter, layout *Layout, keys []string, fields []any) error {
	reply, err := foundScript.runPlain(ctx, rdb, keys, append([]any{m.Deployment, layout.Len(), m.Founding}, fields...))
	switch {
	case err != nil:
		return err
	case len(reply) == 3 && reply[0] == "differs":
		return differs(keys[0], reply[1], reply[2], map[string]string{
			deploymentField: m.Deployment, shardsField: strconv.Itoa(layout.Len()), foundingField: m.Founding}[reply[1]])
	case len(reply) == 1 && reply[0] == "lost":
		return hongbao.Errorf(hongbao.ClassBroken,
			"redis key %s is gone, and the shard's stream %s is there: begun again, it would give old seqs to new grants, "+
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

func serverOf(ctx context.Context, rdb redis.UniversalClient, k Keys) (Server, error) {
	node, err := NodeOf(ctx, rdb, k)
	if err != nil {
		return Server{}, err
	}
	server, err := info(ctx, node)
	if err != nil {
		return Server{}, fmt.Errorf("the server of shard %d: %w", k.Index(), err)
	}
	return server, nil
}

// ReadMark tells whose the prefix is; false if it is nobody's.
func ReadMark(ctx context.Context, rdb redis.UniversalClient, layout *Layout) (m Mark, shards int, found bool,
	err error) {
	has, err := rdb.HGetAll(ctx, layout.Deployment()).Result()
	if err != nil {
		return Mark{}, 0, false, fmt.Errorf("read %s: %w", layout.Deployment(), Classify(err))
	}
	if len(has) == 0 {
		return Mark{}, 0, false, nil
	}
	if err := checkSchema(layout.Deployment(), has); err != nil {
		return Mark{}, 0, false, err
	}
	shards, err = strconv.Atoi(has[shardsField])
	if err != nil {
		return Mark{}, 0, false, differs(layout.Deployment(), shardsField, has[shardsField], strconv.Itoa(layout.Len()))
	}
	return Mark{Deployment: has[deploymentField], Founding: has[foundingField]}, shards, true, nil
}

// checkSchema refuses a key layout that this build can't work with.
func checkSchema(key string, has map[string]string) error {
	version, err := strconv.Atoi(has[schemaField])
	lowest, err2 := strconv.Atoi(has[lowestField])
	switch {
	case err != nil || err2 != nil:
		return differs(key, schemaField, has[schemaField], strconv.Itoa(SchemaVersion))
	case lowest > SchemaVersion:
		return hongbao.Errorf(hongbao.ClassBroken,
			"redis key %s has schema version %d, which builds from version %d on can work with, this one has %d: "+
				"upgrade this program", key, version, lowest, SchemaVersion)
	case version < SchemaVersion:
		return hongbao.Errorf(hongbao.ClassBroken,
			"redis key %s has schema version %d, this build needs %d: `hongbao init` brings it up to date",
			key, version, SchemaVersion)
	}
	return nil
}

// ReadShards tells what each shard was founded as; nil for one that is not there. The error names those whose server
// does not answer; what the others said comes with it.
func ReadShards(ctx context.Context, rdb redis.UniversalClient, layout *Layout) ([]*Founded, error) {
	out, away, err := readShards(ctx, rdb, layout)
	if err != nil {
		return out, fmt.Errorf("read the meta of %s: %w", numbers(away), err)
	}
	return out, nil
}

// numbers names shards.
func numbers(list []int) string {
	if len(list) == 1 {
		return fmt.Sprintf("shard %d", list[0])
	}
	return "shards " + strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ", "), "[]")
}

// readShards reads the metas. away are the shards whose server does not answer, err says why of the first one.
func readShards(ctx context.Context, rdb redis.UniversalClient,
	layout *Layout) (out []*Founded, away []int, err error) {
	pipe := rdb.Pipeline()
	cmds := make([]*redis.SliceCmd, layout.Len())
	for i := range cmds {
		cmds[i] = pipe.HMGet(ctx, layout.Shard(i).Meta(), deploymentField, foundingField, epochField, openedField,
			shardsField)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	out = make([]*Founded, len(cmds))
	for i, cmd := range cmds {
		v, failed := cmd.Result()
		if failed != nil {
			if away = append(away, i); err == nil {
				err = Classify(failed)
			}
			continue
		}
		if v[0] == nil && v[2] == nil {
			continue
		}
		text := func(j int) string { s, _ := v[j].(string); return s }
		epoch, failed := strconv.ParseInt(text(2), 10, 64)
		if failed != nil {
			return out, []int{i}, hongbao.Errorf(hongbao.ClassBroken, "the epoch in redis key %s is %.40q, which is no number: "+
				"find out who can write to Redis", layout.Shard(i).Meta(), text(2))
		}
		out[i] = &Founded{Mark: Mark{Deployment: text(0), Founding: text(1)}, Epoch: epoch, Opened: text(3), shards: text(4)}
	}
	return out, away, err
}

// Open checks that a Redis is the deployment's, that its key layout is one that this build knows, and that no shard is
// missing; it writes nothing. The answer's Founding is to be compared with the ledger's. Broken with ErrNotFounded if
// nothing, or not all, is there. away names the shards of a cluster whose node does not answer, if others do: what
// needs them fails, the others go on.
func Open(ctx context.Context, rdb redis.UniversalClient, layout *Layout,
	deployment string) (m Mark, away error, err error) { // two errors: one does not hinder
	m, n, found, err := ReadMark(ctx, rdb, layout)
	all, silent, failed := readShards(ctx, rdb, layout)
	_, cluster := rdb.(*redis.ClusterClient)
	if some := cluster && len(silent) < len(all) && hongbao.IsOutage(failed); some {
		away = hongbao.Outagef(hongbao.ClassTransient, "the cluster's node of %s does not answer: %w", numbers(silent),
			failed)
		failed = nil
		if hongbao.IsOutage(err) { // the prefix is marked on the same node: each shard says the same of itself
			m, n, found, err = markOf(layout, all)
		}
	}
	switch {
	case err != nil:
		return m, away, err
	case !found:
		return m, away, hongbao.Errorf(hongbao.ClassBroken,
			"%w: this Redis has no deployment under redis key %s. If redis.addrs and deployment.key_prefix name the right "+
				"one, Redis has lost it: %s", ErrNotFounded, layout.Deployment(), afterLoss)
	case m.Deployment != deployment:
		return m, away, differs(layout.Deployment(), deploymentField, m.Deployment, deployment)
	case n != layout.Len():
		return m, away, differs(layout.Deployment(), shardsField, strconv.Itoa(n), strconv.Itoa(layout.Len()))
	case failed != nil:
		return m, away, fmt.Errorf("read the meta of %s: %w", numbers(silent), failed)
	}
	for i, has := range all {
		switch key := layout.Shard(i).Meta(); {
		case has == nil && slices.Contains(silent, i):
		case has == nil:
			return m, away, hongbao.Errorf(hongbao.ClassBroken,
				"%w to the end, or Redis has lost shard %d (redis key %s). If `hongbao init` was killed, run it again; "+
					"else %s", ErrNotFounded, i, key, afterLoss)
		case has.Mark != m:
			return m, away, differs(key, foundingField, has.Founding, m.Founding)
		}
	}
	return m, away, nil
}

// markOf is what the first shard that is there says of all.
func markOf(layout *Layout, all []*Founded) (m Mark, shards int, found bool, err error) {
	for i, has := range all {
		if has == nil {
			continue
		}
		if shards, err = strconv.Atoi(has.shards); err != nil {
			err = differs(layout.Shard(i).Meta(), shardsField, has.shards, strconv.Itoa(layout.Len()))
		}
		return has.Mark, shards, true, err
	}
	return m, 0, false, nil
}
