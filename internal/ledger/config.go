package ledger

import (
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// DefaultConfig returns a Config in which every knob has its default.
func DefaultConfig() Config { return knob.Defaults[Config]() }

// Config says which database has the ledger, and how a process uses it. Database and every knob must be set.
type Config struct {
	// Database has the tables. SQLite serves one machine; several machines need one of the others.
	Database db.Database `json:"-"`
	db.Limits
	// How often a transaction is repeated after a deadlock, or after it got no lock in time.
	Retries int `knob:"ledger.retries" default:"5" want:"1 to 100"`
	// Observe, if not nil, is called for each transaction that has ended. kind is read or write. again says that the
	// transaction lost a conflict with another one and is retried. Observe must be fast and safe for concurrent use.
	Observe func(kind string, took time.Duration, again bool, err error) `json:"-"`
	// Log, if not nil, gets the alarms. Otherwise they go to the log of the first Settler.
	Log *zap.Logger `json:"-"`
}

// Check returns everything that is wrong with the configuration at once.
func (c *Config) Check() error {
	errs := knob.Check(c)
	if c.Database == nil {
		errs = append(errs, errors.New("the database is missing"))
	} else if err := c.Database.Check(); err != nil {
		errs = append(errs, err)
	}
	if c.Timeout <= c.LockTimeout {
		errs = append(errs, fmt.Errorf("the timeout of a transaction is %v: want more than the lock timeout, %v", c.Timeout,
			c.LockTimeout))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("ledger configuration: %w", errors.Join(errs...))
}
