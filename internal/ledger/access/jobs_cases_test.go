package access

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/model"
)

func job(id, name string) model.Job {
	return model.Job{ID: id, Name: name, Order: "o", What: model.Say("Load of %s", "rain"), By: "ann", Campaign: "rain",
		Stopper: "load_campaign", Owner: "p1", Began: time.Now()}
}

// grows makes a job's last heartbeat older.
func (f *fixture) grows(t *testing.T, id string, by time.Duration) {
	t.Helper()
	f.runs(t, db.Stmt{SQL: `UPDATE job SET seen_at = seen_at - $2 WHERE id = $1`, Args: []any{id, by.Milliseconds()}})
}

func (f *fixture) runs(t *testing.T, stmt db.Stmt) {
	t.Helper()
	require.NoError(t, f.Tables().Write(t.Context(), func(context.Context, db.Txn) ([]db.Stmt, error) { return []db.Stmt{stmt}, nil }))
}

func (f *fixture) keeps(t *testing.T, j *model.Job) model.Job {
	t.Helper()
	kept, err := f.access.KeepJobs(t.Context(), []model.Job{*j})
	require.NoError(t, err)
	return kept[0]
}

func (f *fixture) job(t *testing.T, id string) *model.Job {
	t.Helper()
	j, found, err := f.access.Job(t.Context(), id)
	require.NoError(t, err)
	require.True(t, found)
	return &j
}

// testJobs takes a job through its life: it begins, works, is asked to stop, and ends with a result.
func testJobs(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.access
	j := job("j1", "load rain")
	running, err := l.BeginJob(ctx, &j)
	require.NoError(t, err)
	require.Nil(t, running)
	now := f.job(t, "j1")
	require.True(t, now.Running())
	require.WithinDuration(t, time.Now(), now.Began, time.Minute)
	require.Equal(t, "Load of rain", now.What.String())
	require.Equal(t, []string{"load rain", "o", "ann", "rain", "load_campaign", "p1"},
		[]string{now.Name, now.Order, now.By, now.Campaign, now.Stopper, now.Owner})

	second := job("j2", "load rain")
	running, err = l.BeginJob(ctx, &second)
	require.NoError(t, err)
	require.Equal(t, "j1", running.ID, "one job of a name runs at a time")
	require.NoError(t, l.StopJob(ctx, "j1", "bob"))
	require.NoError(t, l.StopJob(ctx, "j1", "cid"))
	j.Step, j.Done, j.Of = strings.Repeat("红", 200), 7, 10
	require.Equal(t, "bob", f.keeps(t, &j).StopBy, "the first request counts")
	now = f.job(t, "j1")
	require.Equal(t, []int64{7, 10}, []int64{now.Done, now.Of})
	require.Equal(t, strings.Repeat("红", maxStep/3), now.Step)

	j.Ended, j.Error, j.Result, j.StopBy = time.Now(), "a\x00b", json.RawMessage(`{"Text":"x"}`), "bob"
	f.keeps(t, &j)
	now = f.job(t, "j1")
	require.False(t, now.Running())
	require.False(t, now.Lost)
	require.Equal(t, "ab", now.Error)
	require.JSONEq(t, `{"Text":"x"}`, string(now.Result))
	last, found, err := l.LastJob(ctx, "load rain")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, *now, last)
	running, err = l.BeginJob(ctx, &second)
	require.NoError(t, err)
	require.Nil(t, running, "the name is free")
	second.Ended, second.Result = time.Now(), json.RawMessage(`"`+strings.Repeat("x", maxResult)+`"`)
	f.keeps(t, &second)
	require.Empty(t, f.job(t, "j2").Result, "a result that is too long is left out")
	list, err := l.Jobs(ctx)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Empty(t, list[0].Result)
}

// testLostJobs says of a job whose owner is silent that it ended with its process, and gives its name away. An owner
// that was only cut off goes on, unless its name is taken.
func testLostJobs(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.access
	j := job("j1", "load rain")
	_, err := l.BeginJob(ctx, &j)
	require.NoError(t, err)
	f.grows(t, "j1", JobLost-5*time.Second)
	require.True(t, f.job(t, "j1").Running())
	f.grows(t, "j1", 6*time.Second)
	now := f.job(t, "j1")
	require.True(t, now.Lost)
	require.False(t, now.Running())
	require.False(t, f.keeps(t, &j).Lost, "its owner is back")
	require.True(t, f.job(t, "j1").Running())

	f.grows(t, "j1", JobLost+time.Second)
	second := job("j2", "load rain")
	running, err := l.BeginJob(ctx, &second)
	require.NoError(t, err)
	require.Nil(t, running)
	require.True(t, f.keeps(t, &j).Lost, "another process has the name")
	require.True(t, f.job(t, "j1").Lost)
	j.Ended, j.Result = time.Now(), json.RawMessage(`{}`)
	f.keeps(t, &j)
	require.False(t, f.job(t, "j1").Lost, "it has ended all the same")
	require.True(t, f.job(t, "j2").Running())

	late := job("j3", "load rain") // it began while the ledger was down
	late.Began = time.Now().Add(-time.Hour)
	f.keeps(t, &late)
	require.WithinDuration(t, late.Began, f.job(t, "j3").Began, time.Minute)
	running, err = l.BeginJob(ctx, &late)
	require.NoError(t, err)
	require.Equal(t, "j2", running.ID, "the name stays with the other one")

	f.grows(t, "j2", jobForgotten+time.Second)
	late.Ended = time.Now()
	f.keeps(t, &late)
	running, err = l.BeginJob(ctx, &model.Job{ID: "j4", Name: "load rain"})
	require.NoError(t, err)
	require.Nil(t, running)
	require.True(t, f.job(t, "j2").Lost)
}

// testManyJobs deletes the oldest jobs that have ended. Of many processes that begin a job of one name, one does.
func testManyJobs(t *testing.T, f *fixture) {
	ctx, l := t.Context(), f.access
	runs := job("runs", "audit")
	_, err := l.BeginJob(ctx, &runs)
	require.NoError(t, err)
	jobs := make([]model.Job, keptJobs+5)
	for i := range jobs {
		jobs[i] = job(fmt.Sprintf("j%03d", i), fmt.Sprint("load c", i))
		jobs[i].Ended = time.Now()
	}
	_, err = l.KeepJobs(ctx, jobs[:5])
	require.NoError(t, err)
	f.runs(t, db.Stmt{SQL: `UPDATE job SET ended_at = ended_at - 1000 WHERE ended_at > 0`})
	_, err = l.KeepJobs(ctx, jobs[5:])
	require.NoError(t, err)
	for i := range jobs {
		_, found, err := l.Job(ctx, jobs[i].ID)
		require.NoError(t, err)
		require.Equal(t, i >= 5, found, jobs[i].ID)
	}
	require.True(t, f.job(t, "runs").Running())
	list, err := l.Jobs(ctx)
	require.NoError(t, err)
	require.Len(t, list, listedJobs)

	var wg sync.WaitGroup
	var mu sync.Mutex
	began := 0
	for i := range 8 {
		wg.Go(func() {
			j := job(fmt.Sprint("one", i), "one")
			running, err := l.BeginJob(ctx, &j)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && running == nil {
				began++
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, began)
}
