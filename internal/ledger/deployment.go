package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// ErrNotInitialized says that a ledger belongs to no deployment yet. Errors that wrap it are Broken.
var ErrNotInitialized = errors.New("the ledger was never initialized")

// Deployment identifies the deployment that the ledger belongs to. Initialize writes it once, and it never changes.
type Deployment struct {
	ID, KeyPrefix string
	Shards        int
	// Founding is a random value that Initialize draws and that Redis stores, too. It tells apart deployments with the
	// same id, such as staging and production.
	Founding string
}

// ShardState is what the ledger knows of a shard in Redis.
type ShardState struct {
	// Epoch rises each time the shard is opened; 0 means that it was never opened.
	Epoch int64
	// Token names the Redis server for which the shard was opened last.
	Token string
}

// Initialize initializes the ledger for a deployment; it ignores want.Founding. A repeated call returns the existing
// deployment. Initialize returns an error of ClassBroken if the ledger has another deployment id, key prefix or number of
// shards, or if it has campaigns but no deployment.
func (l *Ledger) Initialize(ctx context.Context, want Deployment) (has Deployment, err error) {
	want.Founding = rand.Text()
	err = l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		insert := db.Stmt{SQL: l.tables.Dialect.InsertDeployment,
			Args: []any{want.ID, want.KeyPrefix, int64(want.Shards), want.Founding}}
		if err := t.Run(ctx, insert); err != nil {
			return nil, err
		}
		if has, err = readDeployment(ctx, t); err != nil {
			return nil, err
		}
		if has.Founding != want.Founding { // the row existed
			return nil, has.Is(want)
		}
		return l.foundShards(ctx, t, want.Shards)
	})
	if err != nil {
		return Deployment{}, fmt.Errorf("found the ledger: %w", err)
	}
	return has, nil
}

// foundShards returns the statements that insert the rows of the shards. It refuses a ledger that has campaigns: it was
// in use before, and its row in table deployment was lost.
func (l *Ledger) foundShards(ctx context.Context, t db.Txn, shards int) ([]db.Stmt, error) {
	err := t.Query(ctx, `SELECT id FROM campaign ORDER BY id LIMIT 1`, nil, func(s db.Scan) error {
		var id string
		if err := s(&id); err != nil {
			return err
		}
		return hongbao.Errorf(hongbao.ClassBroken, "it already has campaigns, such as %s, but its table deployment is "+
			"empty: restore that table from a backup", id)
	})
	stmts := make([]db.Stmt, shards)
	for i := range stmts {
		stmts[i] = db.Stmt{SQL: `INSERT INTO shard (shard, epoch, token) VALUES ($1, 0, '')`, Args: []any{int64(i)}}
	}
	return stmts, err
}

// Is returns a Broken error if id, key prefix or number of shards differ from want.
func (d Deployment) Is(want Deployment) error {
	if d.ID == want.ID && d.KeyPrefix == want.KeyPrefix && d.Shards == want.Shards {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassBroken, "the ledger belongs to deployment %q with key prefix %q and %d shards, "+
		"not to deployment %q with key prefix %q and %d shards: point ledger.dsn to the right database, or correct "+
		"deployment.id, deployment.key_prefix and deployment.shards",
		d.ID, d.KeyPrefix, d.Shards, want.ID, want.KeyPrefix, want.Shards)
}

// Deployment returns the deployment of this ledger; ErrNotInitialized if it has none.
func (l *Ledger) Deployment(ctx context.Context) (Deployment, error) {
	return tables.Snapshot(ctx, l.tables, "read the deployment of the ledger", readDeployment)
}

func readDeployment(ctx context.Context, t db.Txn) (Deployment, error) {
	d, found, err := tables.Query[Deployment]{SQL: `SELECT id, key_prefix, shards, founding FROM deployment`,
		Row: func(s db.Scan) (d Deployment, err error) {
			err = s(&d.ID, &d.KeyPrefix, &d.Shards, &d.Founding)
			return d, err
		}}.First(ctx, t)
	if err == nil && (!found || d.Founding == "") {
		err = hongbao.Errorf(hongbao.ClassBroken, "%w: point ledger.dsn to the right database; `hongbao init` initializes "+
			"a new one", ErrNotInitialized)
	}
	return d, err
}

// Shard returns the epoch and the server of a shard.
func (l *Ledger) Shard(ctx context.Context, shard int) (ShardState, error) {
	return tables.Snapshot(ctx, l.tables, fmt.Sprintf("read shard %d from the ledger", shard),
		func(ctx context.Context, t db.Txn) (ShardState, error) { return readShard(ctx, t, shard) })
}

// Epochs returns the epochs of all shards, in the order of the shards.
func (l *Ledger) Epochs(ctx context.Context) ([]int64, error) {
	return epochsOf("").All(ctx, l.tables)
}

// epochsOf reads the shards' epochs. share is a suffix that locks the rows; see db.Dialect.
func epochsOf(share string) tables.Query[int64] {
	return tables.Ask("read the epochs of all shards", `SELECT epoch FROM shard ORDER BY shard`+share, nil, tables.Number)
}

func readShard(ctx context.Context, t db.Txn, shard int) (ShardState, error) {
	state, found, err := tables.Query[ShardState]{SQL: `SELECT epoch, token FROM shard WHERE shard = $1`,
		Args: []any{int64(shard)}, Row: func(s db.Scan) (state ShardState, err error) {
			err = s(&state.Epoch, &state.Token)
			return state, err
		}}.First(ctx, t)
	if err == nil && !found {
		err = hongbao.Errorf(hongbao.ClassBroken, "it has no such shard: %w, or deployment.shards is wrong", ErrNotInitialized)
	}
	return state, err
}

// SetShard records that a shard was opened: it replaces the shard's state, whose epoch must be from, by the state to. A
// repeated call changes nothing. A Conflict says that another process has opened the shard.
func (l *Ledger) SetShard(ctx context.Context, shard int, from int64, to ShardState) error {
	move := shardMove{shard: shard, from: from, to: to}
	return move.named(l.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		_, err := move.run(ctx, t)
		return nil, err
	}))
}

// shardMove moves a shard's row to another state.
type shardMove struct {
	shard int
	from  int64 // the epoch that the row must have
	to    ShardState
}

// run reports whether it changed the row; false means that the row already has the new state.
func (m *shardMove) run(ctx context.Context, t db.Txn) (moved bool, err error) {
	var changed int64
	if err := t.Run(ctx, db.Stmt{SQL: `UPDATE shard SET epoch = $3, token = $4 WHERE shard = $1 AND epoch = $2`,
		Args: []any{int64(m.shard), m.from, m.to.Epoch, m.to.Token}, Changed: &changed}); err != nil || changed == 1 {
		return err == nil, err
	}
	has, err := readShard(ctx, t, m.shard)
	if err == nil && has != m.to {
		err = hongbao.Errorf(hongbao.ClassConflict, "the ledger has it at epoch %d for server %q, not at epoch %d: "+
			"another process has opened it",
			has.Epoch, has.Token, m.from)
	}
	return false, err
}

func (m *shardMove) named(err error) error {
	if err != nil {
		return fmt.Errorf("note epoch %d of shard %d in the ledger: %w", m.to.Epoch, m.shard, err)
	}
	return nil
}

// HighestSeq returns the highest seq of a shard that the ledger has seen; 0 if it has seen none. It counts grants (also
// archived, in quarantine or pending), the closes that refunds are based on, and the events before a sink was added or
// removed: if Redis handed out these seqs again, the sink would not owe them.
func (l *Ledger) HighestSeq(ctx context.Context, shard int) (int64, error) {
	seq, _, err := tables.Ask(fmt.Sprintf("ask the ledger for the highest seq of shard %d", shard),
		`SELECT COALESCE(MAX(seq), 0) FROM (SELECT MAX(seq) AS seq FROM grants WHERE shard = $1
			UNION ALL SELECT MAX(seq) FROM quarantine WHERE shard = $1
			UNION ALL SELECT MAX(seq) FROM pending WHERE shard = $1
			UNION ALL SELECT MAX(close_seq) FROM refund WHERE shard = $1
			UNION ALL SELECT MAX(close_seq) FROM refund_close WHERE shard = $1
			UNION ALL SELECT MAX(last_seq) FROM archive_shard WHERE shard = $1
			UNION ALL SELECT MAX(first_seq) - 1 FROM owed WHERE shard = $1
			UNION ALL SELECT MAX(last_seq) FROM owed WHERE shard = $1 AND last_seq < $2) AS seen`,
		[]any{int64(shard), int64(stream.Forever)}, tables.Number).One(ctx, l.tables)
	return seq, err
}

// HighestSeqIn returns the highest seq of a shard within seqs that the ledger has seen; 0 if it has seen none of them.
// Of grants it also counts a higher seq if its epoch is before this one. It also counts the event before a sink was
// added, unless that is the last one of seqs: an opening has skipped seqs, and its last one is the shard's last seq.
func (l *Ledger) HighestSeqIn(ctx context.Context, shard int, seqs stream.SeqRange, before int64) (int64, error) {
	seq, _, err := tables.Ask(fmt.Sprintf("ask the ledger for seqs %d to %d of shard %d", seqs.First, seqs.Last, shard),
		`SELECT COALESCE(MAX(seq), 0) FROM (SELECT seq FROM grants WHERE shard = $1 AND seq >= $2 AND (seq <= $3 OR epoch < $4)
			UNION ALL SELECT seq FROM quarantine WHERE shard = $1 AND seq >= $2 AND (seq <= $3 OR epoch < $4)
			UNION ALL SELECT seq FROM pending WHERE shard = $1 AND seq >= $2 AND (seq <= $3 OR epoch < $4)
			UNION ALL SELECT close_seq FROM refund WHERE shard = $1 AND close_seq >= $2 AND close_seq <= $3
			UNION ALL SELECT close_seq FROM refund_close WHERE shard = $1 AND close_seq >= $2 AND close_seq <= $3
			UNION ALL SELECT last_seq FROM archive_shard WHERE shard = $1 AND last_seq >= $2 AND last_seq <= $3
			UNION ALL SELECT first_seq - 1 FROM owed WHERE shard = $1 AND first_seq > $2 AND first_seq <= $3) AS seen`,
		[]any{int64(shard), seqs.First, seqs.Last, before}, tables.Number).One(ctx, l.tables)
	return seq, err
}

// Events is what the ledger knows of a range of seqs.
type Events struct {
	// Campaigns are the ids of campaigns with grants in the range: paid, in quarantine or pending.
	Campaigns map[string]bool
	// Gap is the first seq for which the ledger knows neither a grant nor a refunded close; 0 if there is none. Reading
	// ends soon after the gap, so Campaigns may lack later campaigns.
	Gap int64
}

// eventsPage is how many seqs one query of EventsIn covers.
const eventsPage = 10_000

// EventsIn returns what the ledger knows of a range of a shard's seqs. It stops after the page with the first gap. The
// ledger does not store the single seqs of archived grants, so they count as a gap.
func (l *Ledger) EventsIn(ctx context.Context, shard int, seqs stream.SeqRange) (Events, error) {
	out := Events{Campaigns: map[string]bool{}}
	type event struct {
		seq      int64
		campaign string
	}
	for next := seqs.First; next <= seqs.Last && out.Gap == 0; {
		last := min(seqs.Last, next+eventsPage-1)
		page, err := tables.Ask(fmt.Sprintf("read the events %d to %d of shard %d", next, last, shard),
			`SELECT seq, campaign FROM (SELECT seq, campaign FROM grants WHERE shard = $1 AND seq >= $2 AND seq <= $3
				UNION SELECT seq, campaign FROM quarantine WHERE shard = $1 AND seq >= $2 AND seq <= $3
				UNION SELECT seq, campaign FROM pending WHERE shard = $1 AND seq >= $2 AND seq <= $3
				UNION SELECT close_seq, '' FROM refund WHERE shard = $1 AND close_seq >= $2 AND close_seq <= $3
				UNION SELECT close_seq, '' FROM refund_close WHERE shard = $1 AND close_seq >= $2 AND close_seq <= $3)
				AS known ORDER BY seq, campaign`,
			[]any{int64(shard), next, last}, func(s db.Scan) (e event, err error) {
				err = s(&e.seq, &e.campaign)
				return e, err
			}).All(ctx, l.tables)
		if err != nil {
			return out, err
		}
		for _, e := range page {
			if e.seq <= next {
				next = e.seq + 1
			}
			if e.campaign != "" {
				out.Campaigns[e.campaign] = true
			}
		}
		if next <= last {
			out.Gap = next
		}
	}
	return out, nil
}
