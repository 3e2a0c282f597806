package simulation

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"modernc.org/sqlite"

	books "github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// database is the ledger's server for all processes: it may be slow or read-only, or a standby takes its place.
type database struct {
	file string

	mu      sync.Mutex
	until   time.Time
	each    time.Duration                    // of a transaction; 0: none begins until then
	refuses error                            // the answer to every transaction; nil: it serves
	armed   books.Moment                     // of which the next transaction of a worker sets refuses to readOnly
	trap    chan struct{}                    // closed then; nil: no trap is set
	now     *connections                     // those that transactions get
	on      map[context.Context]*connections // from a transaction's context to its connection
}

// connections live until they break.
type connections struct {
	life context.Context //nolint:containedctx // their life
	cut  context.CancelFunc
}

func connected() *connections {
	c := &connections{}
	c.life, c.cut = context.WithCancel(context.Background())
	return c
}

var (
	errReadOnly  = errors.New("simulated: the server is read-only")
	errAway      = errors.New("simulated: the server is away")
	errConnBroke = errors.New("simulated: the connection broke")
)

func newDatabase(file string) *database {
	return &database{file: file, now: connected(), on: map[context.Context]*connections{}}
}

// set makes the server slow for a while.
func (b *database) set(d, each time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until, b.each = time.Now().Add(d), each
}

// refuse breaks all connections, and refuses every transaction with err from now on. With nil the server serves again.
func (b *database) refuse(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuseNow(err)
}

func (b *database) refuseNow(err error) {
	b.trap = nil
	if b.refuses = err; err == nil {
		return
	}
	b.now.cut()
	b.now = connected()
}

// setTrap makes the server read-only at the next such moment of a worker's transaction. The channel is closed then.
func (b *database) setTrap(at books.Moment) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed, b.trap = at, make(chan struct{})
	return b.trap
}

// gate is the gate of a process.
func (b *database) gate(p *virtual.Proc) books.Gate {
	return func(ctx context.Context, at books.Moment) error {
		if at == books.GateBegin {
			if err := b.slow(ctx); err != nil {
				return err
			}
		}
		life, err := b.connection(ctx, p, at)
		if err != nil {
			return err
		}
		either, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(life, cancel)()
		if err := p.Gate(either, at); err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if life.Err() != nil {
			return errConnBroke
		}
		return nil
	}
}

func (b *database) slow(ctx context.Context) error {
	b.mu.Lock()
	wait, each := time.Until(b.until), b.each
	b.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	if each > 0 {
		wait = each
	}
	return virtual.Sleep(ctx, wait)
}

// connection returns the life of a transaction's connection. A transaction of a broken connection gets no further.
func (b *database) connection(ctx context.Context, p *virtual.Proc, at books.Moment) (context.Context, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.trap != nil && b.armed == at && p.Name[0] == 'w' {
		close(b.trap)
		b.refuseNow(errReadOnly)
	}
	if b.refuses != nil {
		return nil, b.refuses
	}
	if at == books.GateBegin {
		if b.on[ctx] == nil {
			context.AfterFunc(ctx, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				delete(b.on, ctx)
			})
		}
		b.on[ctx] = b.now
	}
	on := b.on[ctx]
	if on == nil { // its context has just ended
		on = b.now
	}
	if on.life.Err() != nil {
		return nil, errConnBroke
	}
	return on.life, nil
}

// copied is the name of a copy of the database's file.
func (b *database) copied() string { return b.file + ".standby" }

// conn calls fn with a connection to the database's file.
func (b *database) conn(ctx context.Context, fn func(*sql.Conn) error) (err error) {
	file := url.URL{Scheme: "file", OmitHost: true, Path: b.file, RawQuery: "mode=rw&_pragma=busy_timeout(0)"}
	db, err := sql.Open("sqlite", file.String())
	if err != nil {
		return fmt.Errorf("open the ledger: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	c, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("open the ledger: %w", err)
	}
	defer c.Close()
	return fn(c)
}

// copier is what the driver's connection can do.
type copier interface {
	NewBackup(to string) (*sqlite.Backup, error)
	NewRestore(from string) (*sqlite.Backup, error)
}

// replicate copies the database, as a standby that gets nothing more from then on.
func (b *database) replicate(ctx context.Context) error {
	return b.whole(ctx, func(c copier) (*sqlite.Backup, error) { return c.NewBackup(b.copied()) })
}

// promote replaces the database by the copy. No transaction may be under way, so connections break before.
func (b *database) promote(ctx context.Context) error {
	defer b.drop()
	return b.whole(ctx, func(c copier) (*sqlite.Backup, error) { return c.NewRestore(b.copied()) })
}

func (b *database) drop() {
	for _, f := range []string{"", "-wal", "-shm"} {
		_ = os.Remove(b.copied() + f)
	}
}

// whole copies a whole database. It tries again while a transaction that is about to fail holds the file.
func (b *database) whole(ctx context.Context, begin func(copier) (*sqlite.Backup, error)) error {
	return b.conn(ctx, func(c *sql.Conn) (err error) {
		for range 100 {
			err = c.Raw(func(driver any) error {
				with, is := driver.(copier)
				if !is {
					return errors.New("the driver can't copy a database")
				}
				copying, err := begin(with)
				if err != nil {
					return err
				}
				more, err := copying.Step(-1)
				if err == nil && more {
					err = errors.New("the copy is not whole")
				}
				return errors.Join(err, copying.Finish())
			})
			if err == nil || virtual.Sleep(ctx, virtual.Latency) != nil {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("copy the ledger: %w", err)
		}
		return nil
	})
}

// counts returns how many grants the ledger has, and how many refunds.
func (b *database) counts(ctx context.Context) (grants, refunds int, err error) {
	err = b.conn(ctx, func(c *sql.Conn) error {
		return c.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM grants), (SELECT COUNT(*) FROM refund)`).
			Scan(&grants, &refunds)
	})
	return grants, refunds, err
}
