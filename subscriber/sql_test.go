package subscriber

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"github.com/hongbao-project/hongbao/topic"
)

// databases runs a test on each supported database.
func databases(t *testing.T, fn func(t *testing.T, db *database)) {
	t.Helper()
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) { t.Parallel(); fn(t, sqliteDB(t, tempFile(t))) })
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		fn(t, postgresDB(t))
	})
}

func TestSQLPushesOnce(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		s := db.sink(t, nil)
		r, err := s.Push(t.Context(), append(events(0, 1, 2, 3, 2), events(3, 1)...))
		require.NoError(t, err)
		require.Equal(t, Report{Next: 5, Done: 4, Repeated: 1}, r)
		r, err = db.sink(t, nil).Push(t.Context(), events(0, 3, 9, 1, 5)) // a new sink, as after a restart
		require.NoError(t, err)
		require.Equal(t, Report{Next: 4, Done: 2, Repeated: 2}, r)
		require.NoError(t, s.Skip(t.Context(), event(0, 7)))
		r, err = s.Push(t.Context(), events(0, 7, 4))
		require.NoError(t, err)
		require.Equal(t, Report{Next: 2, Done: 1, Repeated: 1}, r)
		effects, distinct := db.count(t)
		require.Equal(t, 7, effects)
		require.Equal(t, 7, distinct)
	})
}

func TestSQLIsAllOrNothing(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		bad := hongbao.Errorf(hongbao.ClassPermanent, "no such user")
		s := db.sink(t, func(e *topic.Event) error {
			if e.Grant.Seq == 3 {
				return bad
			}
			return nil
		})
		r, err := s.Push(t.Context(), events(0, 1, 2, 3, 4))
		require.ErrorIs(t, err, bad)
		require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
		require.Equal(t, Report{}, r)
		effects, _ := db.count(t)
		require.Zero(t, effects)
		r, err = s.Push(t.Context(), events(0, 1, 2))
		require.NoError(t, err)
		require.Equal(t, 2, r.Done)

		broken := db.sink(t, nil)
		broken.cfg.Effect = func(ctx context.Context, tx *sql.Tx, _ []topic.Event) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO nowhere (x) VALUES (1)`)
			return err
		}
		_, err = broken.Push(t.Context(), events(0, 8))
		require.Error(t, err)
		require.False(t, hongbao.IsOutage(err), "the database answers, so this is not an outage")
	})
}

// A failure of the database is an outage, so no event loses an attempt.
func TestSQLOutage(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		s := db.sink(t, nil)
		_, err := db.ExecContext(t.Context(), `ALTER TABLE hongbao_seen RENAME TO gone`)
		require.NoError(t, err)
		_, err = s.Push(t.Context(), events(0, 1))
		require.True(t, hongbao.IsOutage(err), err)
		require.True(t, hongbao.IsOutage(s.Skip(t.Context(), event(0, 1))))
		_, err = db.ExecContext(t.Context(), `ALTER TABLE gone RENAME TO hongbao_seen`)
		require.NoError(t, err)
		// The table of the rows vanishes during an effect, as if the database had failed.
		s.cfg.Effect = func(ctx context.Context, tx *sql.Tx, _ []topic.Event) error {
			_, err := tx.ExecContext(ctx, `ALTER TABLE hongbao_seen RENAME TO gone`)
			if err == nil {
				err = tx.Commit()
			}
			return errors.Join(err, errors.New("driver: bad connection"))
		}
		_, err = s.Push(t.Context(), events(0, 1))
		require.ErrorContains(t, err, "bad connection")
		require.True(t, hongbao.IsOutage(err), err)
	})
}

func TestSQLRowOfAnotherProgram(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		s := db.sink(t, nil)
		_, err := s.Push(t.Context(), events(0, 1))
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), `UPDATE hongbao_seen SET seen = $1`, []byte{9})
		require.NoError(t, err)
		_, err = s.Push(t.Context(), events(0, 2))
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
		effects, _ := db.count(t)
		require.Equal(t, 1, effects)
	})
}

// Several members push the same events at the same time, as after a rebalance. Each event has one effect.
func TestSQLAtOnce(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		s := db.sink(t, nil)
		const members, rounds = 6, 20
		var wg sync.WaitGroup
		var mu sync.Mutex
		done := 0
		for m := range members {
			wg.Go(func() {
				for i := range rounds {
					at := int64(i*5 + 1)
					batch := append(events(m%2, at, at+1, at+2, at+3, at+4), events(1-m%2, at)...)
					r, err := s.Push(t.Context(), batch)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					done += r.Done
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		effects, distinct := db.count(t)
		require.Equal(t, 2*5*rounds, distinct)
		require.Equal(t, distinct, effects)
		require.Equal(t, effects, done)
	})
}

func TestSQLMadeAtOnce(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				_, err := NewSQL(t.Context(), SQLConfig{DB: db.DB, Dialect: db.dialect, Name: "g",
					UnsafeAllow: fastServers, Timeout: 20 * time.Second,
					Effect: rows(nil)})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

func TestSQLRefusesForgetfulDatabases(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+tempFile(t)+"?_pragma=synchronous(NORMAL)")
	require.NoError(t, err)
	defer db.Close()
	cfg := SQLConfig{DB: db, Dialect: sqLite, Name: "g", Timeout: time.Second, Effect: rows(nil)}
	_, err = NewSQL(t.Context(), cfg)
	require.ErrorContains(t, err, "synchronous")
	db, err = sql.Open("pgx", testkit.Postgres(t)+"&synchronous_commit=off")
	require.NoError(t, err)
	defer db.Close()
	cfg.DB, cfg.Dialect = db, postgreSQL
	_, err = NewSQL(t.Context(), cfg)
	require.ErrorContains(t, err, "synchronous_commit")
	db, err = sql.Open("pgx", testkit.Postgres(t)) // testkit's servers are fast, and lose data in a power loss
	require.NoError(t, err)
	defer db.Close()
	cfg.DB = db
	for _, setting := range []string{"fsync", "full_page_writes"} {
		_, err = NewSQL(t.Context(), cfg)
		require.ErrorContains(t, err, "a power loss would lose effects")
		cfg.UnsafeAllow = append(cfg.UnsafeAllow, setting)
	}
	_, err = NewSQL(t.Context(), cfg)
	require.NoError(t, err)
}

func TestSQLConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := NewSQL(t.Context(), SQLConfig{Dialect: "oracle", Name: "a b", Timeout: time.Hour})
	for _, part := range []string{"DB and Effect", "oracle", "a b", "1h0m0s"} {
		require.ErrorContains(t, err, part)
	}
}

func TestFuncSink(t *testing.T) {
	t.Parallel()
	b := newBook()
	fail := true
	b.fault = func(e *topic.Event) error {
		if fail && e.Grant.Seq == 3 {
			return hongbao.Errorf(hongbao.ClassTransient, "not now")
		}
		return nil
	}
	a := b.funcSink(t)
	r, err := a.Push(t.Context(), events(0, 1, 2, 3, 4))
	require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
	require.Equal(t, Report{Next: 2, Done: 2}, r)
	fail = false
	r, err = a.Push(t.Context(), events(0, 3, 4, 1))
	require.NoError(t, err)
	require.Equal(t, Report{Next: 3, Done: 2, Repeated: 1}, r)
	require.NoError(t, a.Skip(t.Context(), event(0, 5)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err = a.Push(ctx, events(0, 5, 6))
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, r.Next)
	require.Equal(t, map[string]int{"0-1": 1, "0-2": 1, "0-3": 1, "0-4": 1}, b.copies())
	_, err = NewFuncSink(FuncSinkConfig{Timeout: time.Second})
	require.ErrorContains(t, err, "Effect is required")
	_, err = NewFuncSink(FuncSinkConfig{Effect: b.note})
	require.ErrorContains(t, err, "Timeout of an effect is 0s")
}
