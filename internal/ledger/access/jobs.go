package access

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
)

const (
	// JobLost is how old the last heartbeat of a job may be. After that the job has ended with its process.
	JobLost = 30 * time.Second
	// jobForgotten is the age of the last heartbeat at which the row ends, too, even if nobody has started the job again.
	jobForgotten = 24 * time.Hour
	// keptJobs is how many ended jobs the ledger keeps, listedJobs how many jobs a list has.
	keptJobs, listedJobs = 200, 50
	// maxResult and maxJobText bound the result and the error of a job in bytes; maxStep bounds what it does.
	maxResult, maxJobText, maxStep = 64 << 10, 4 << 10, 200
)

// jobColumns ends with a place for the column of the result, and the age of the last heartbeat.
const jobColumns = `id, name, order_hash, what, started_by, campaign, stopper, owner, began_at, seen_at, step, done, parts,
	stop_by, ended_at, lost, error, %s, %s - seen_at`

// loseJobs is the beginning of a statement that ends the rows of jobs whose processes are gone.
const loseJobs = `UPDATE job SET ended_at = seen_at, lost = 1, claim = NULL WHERE `

// selectJobs returns the beginning of a query for jobs, with or without their results.
func (a Access) selectJobs(results bool) string {
	result := "''"
	if results {
		result = "result"
	}
	return "SELECT " + fmt.Sprintf(jobColumns, result, a.tables.Dialect.Now) + " FROM job "
}

// scanJob scans a job as pages show it: if its owner is silent for long, it has ended with its process.
func scanJob(s db.Scan) (model.Job, error) {
	j, age, err := scanStored(s)
	if err == nil && j.Running() && age > JobLost.Milliseconds() {
		j.Ended, j.Lost = j.Seen, true
	}
	return j, err
}

// scanStored scans a job as the ledger has it, and how old its last heartbeat is, in milliseconds.
func scanStored(s db.Scan) (j model.Job, age int64, err error) {
	var what, result string
	var began, seen, ended, lost int64
	if err = s(&j.ID, &j.Name, &j.Order, &what, &j.By, &j.Campaign, &j.Stopper, &j.Owner, &began, &seen, &j.Step, &j.Done, &j.Of,
		&j.StopBy, &ended, &lost, &j.Error, &result, &age); err != nil {
		return j, 0, err
	}
	if err = json.Unmarshal([]byte(what), &j.What); err != nil {
		return j, 0, hongbao.Errorf(hongbao.ClassBroken, "job %s has a name that is not JSON: %w", j.ID, err)
	}
	j.Began, j.Seen, j.Ended, j.Lost = tables.At(began), tables.At(seen), tables.At(ended), lost != 0
	if result != "" {
		j.Result = json.RawMessage(result)
	}
	return j, age, nil
}

// BeginJob stores a job that begins. If a job of its name runs already, BeginJob stores nothing and returns that one. A
// job that has ended with its process makes way.
func (a Access) BeginJob(ctx context.Context, j *model.Job) (running *model.Job, err error) {
	err = a.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		running = nil
		has, found, err := a.claimed(ctx, t, j.Name)
		if err != nil {
			return nil, err
		}
		if found && has.Running() {
			running = &has
			return nil, nil
		}
		insert, err := a.insertJob(j, true)
		if found {
			return []db.Stmt{{SQL: loseJobs + `id = $1`, Args: []any{has.ID}},
				insert}, err
		}
		return []db.Stmt{insert}, err
	})
	if err != nil {
		return nil, fmt.Errorf("store that job %q begins: %w", j.Name, err)
	}
	return running, nil
}

// claimed returns the job that has a name, running or lost.
func (a Access) claimed(ctx context.Context, t db.Txn, name string) (model.Job, bool, error) {
	return tables.Query[model.Job]{SQL: a.selectJobs(false) + `WHERE claim = $1`, Args: []any{name}, Row: scanJob}.First(ctx, t)
}

// insertJob returns the statement that stores a job. Its times are of the database's clock.
func (a Access) insertJob(j *model.Job, claims bool) (db.Stmt, error) {
	what, err := json.Marshal(j.What)
	claim := "NULL"
	if claims {
		claim = "$2"
	}
	now := a.tables.Dialect.Now
	return db.Stmt{SQL: `INSERT INTO job (id, name, claim, order_hash, what, started_by, campaign, stopper, owner, began_at,
		seen_at, step, done, parts, stop_by, ended_at, lost, error, result)
		VALUES ($1, $2, ` + claim + `, $3, $4, $5, $6, $7, $8, ` + now + ` - $9, ` + now + `, '', 0, 0, '', 0, 0, '', '')`,
		Args: []any{j.ID, j.Name, j.Order, string(what), j.By, j.Campaign, j.Stopper, j.Owner,
			max(0, time.Since(j.Began).Milliseconds())}}, err
}

// KeepJobs stores how far the jobs of a process are, and returns each as the ledger had it, in the same order. Of a
// running job that is lost, another process has taken the name; KeepJobs leaves its row as it is. It also stores a job
// that the ledger did not get when it began.
func (a Access) KeepJobs(ctx context.Context, jobs []model.Job) (kept []model.Job, err error) {
	err = a.tables.Write(ctx, func(ctx context.Context, t db.Txn) ([]db.Stmt, error) {
		kept = make([]model.Job, len(jobs))
		var stmts []db.Stmt
		ended := false
		for i := range jobs {
			more, err := a.keepJob(ctx, t, &jobs[i], &kept[i])
			if err != nil {
				return nil, err
			}
			stmts = append(stmts, more...)
			ended = ended || !jobs[i].Running()
		}
		if !ended {
			return stmts, nil
		}
		if err := t.Run(ctx, stmts...); err != nil {
			return nil, err
		}
		return a.pruneJobs(ctx, t)
	})
	if err != nil {
		return nil, fmt.Errorf("store the state of the jobs: %w", err)
	}
	return kept, nil
}

func (a Access) keepJob(ctx context.Context, t db.Txn, j, kept *model.Job) (stmts []db.Stmt, err error) {
	now := a.tables.Dialect.Now
	has, found, err := tables.Query[model.Job]{SQL: a.selectJobs(false) + `WHERE id = $1`, Args: []any{j.ID},
		Row: func(s db.Scan) (model.Job, error) { has, _, err := scanStored(s); return has, err }}.First(ctx, t)
	if err != nil {
		return nil, err
	}
	if !found {
		_, taken, err := a.claimed(ctx, t, j.Name)
		if err != nil {
			return nil, err
		}
		insert, err := a.insertJob(j, !taken)
		if err != nil {
			return nil, err
		}
		if err = t.Run(ctx, insert); err != nil {
			return nil, err
		}
		has = *j
	}
	*kept = has
	if j.Running() {
		return []db.Stmt{{SQL: `UPDATE job SET seen_at = ` + now + `, step = $2, done = $3, parts = $4 WHERE id = $1 AND ended_at = 0`,
			Args: []any{j.ID, access.Storable(j.Step, maxStep), j.Done, j.Of}}}, nil
	}
	result, lost := string(j.Result), int64(0)
	if len(result) > maxResult {
		result = ""
	}
	if j.Lost {
		lost = 1
	}
	return []db.Stmt{{SQL: `UPDATE job SET claim = NULL, ended_at = ` + now + `, seen_at = ` + now + `, lost = $2, error = $3, result = $4,
		stop_by = $5 WHERE id = $1`, Args: []any{j.ID, lost, access.Storable(j.Error, maxJobText), result, j.StopBy}}}, nil
}

// pruneJobs ends the rows of processes that are gone for long, and deletes all but the newest ended jobs.
func (a Access) pruneJobs(ctx context.Context, t db.Txn) (stmts []db.Stmt, err error) {
	if err := t.Run(ctx, db.Stmt{SQL: loseJobs + `ended_at = 0 AND seen_at < ` +
		a.tables.Dialect.Now + ` - $1`, Args: []any{jobForgotten.Milliseconds()}}); err != nil {
		return nil, err
	}
	old, err := tables.Query[string]{SQL: fmt.Sprintf(`SELECT id FROM job WHERE ended_at > 0 ORDER BY ended_at DESC, id LIMIT 1000 OFFSET %d`,
		keptJobs), Row: tables.Text}.In(ctx, t)
	for _, id := range old {
		stmts = append(stmts, db.Stmt{SQL: `DELETE FROM job WHERE id = $1`, Args: []any{id}})
	}
	return stmts, err
}

// StopJob asks the owner of a running job to stop it. The owner reads that at its next heartbeat.
func (a Access) StopJob(ctx context.Context, id, by string) error {
	err := a.tables.Write(ctx, func(context.Context, db.Txn) ([]db.Stmt, error) {
		return []db.Stmt{{SQL: `UPDATE job SET stop_by = $2 WHERE id = $1 AND ended_at = 0 AND stop_by = ''`, Args: []any{id, by}}}, nil
	})
	if err != nil {
		return fmt.Errorf("ask job %.40s to stop: %w", id, err)
	}
	return nil
}

// Jobs returns the jobs of all processes without their results: those that run, then the newest.
func (a Access) Jobs(ctx context.Context) ([]model.Job, error) {
	return tables.Ask("read the jobs", a.selectJobs(false)+fmt.Sprintf(`ORDER BY CASE WHEN ended_at = 0 THEN 0 ELSE 1 END, began_at DESC, id
		LIMIT %d`, listedJobs), nil,
		scanJob).All(ctx, a.tables)
}

// Job returns a job with its result; false if there is none with this id.
func (a Access) Job(ctx context.Context, id string) (model.Job, bool, error) {
	return tables.Ask("read a job", a.selectJobs(true)+`WHERE id = $1`, []any{id}, scanJob).One(ctx, a.tables)
}

// LastJob returns the last job of a name that ended with a result; false if there is none.
func (a Access) LastJob(ctx context.Context, name string) (model.Job, bool, error) {
	return tables.Ask("read the last job of a name", a.selectJobs(true)+`WHERE name = $1 AND ended_at > 0 AND result <> ''
		ORDER BY ended_at DESC, id LIMIT 1`, []any{name}, scanJob).One(ctx, a.tables)
}
