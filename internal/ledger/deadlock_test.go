package ledger

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// circles is a store that counts the deadlocks which the database reports. The ledger retries these transactions, so
// its callers see no error.
type circles struct {
	db.Store
	found atomic.Int64
}

func (s *circles) Write(ctx context.Context, fn func(db.Txn) ([]db.Stmt, error)) error {
	err := s.Store.Write(ctx, fn)
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	if errors.As(err, &pg) && pg.Code == "40P01" || errors.As(err, &my) && my.Number == 1213 {
		s.found.Add(1)
	}
	return err
}

// crowds has functions that return the batch of a settler in a round. All batches of a round are settled at once and
// lock the same rows. Every second settler lists the grants in reverse order.
var crowds = map[string]func(round, settler int) []hongbao.Grant{
	"the same packets": func(round, settler int) []hongbao.Grant {
		return reversedForOdd(settler, grantsOf("rain", int64(round*40+1), int64(round*40+40)))
	},
	"the same accounts": func(round, settler int) []hongbao.Grant {
		first := int64((round*settlersAtOnce+settler)*40 + 1)
		list := grantsOf("rain", first, first+39)
		for i := range list { // the packets keep their order; only the users' order is reversed
			who := i
			if settler%2 == 1 {
				who = len(list) - 1 - i
			}
			list[i].User = "u" + strconv.Itoa(1000+who)
		}
		return list
	},
	"the same pools": func(round, settler int) []hongbao.Grant {
		packet := int64(round*settlersAtOnce + settler + 1)
		list := []hongbao.Grant{grant("rain", packet), grant("snow", packet), grant("hail", packet), grant("fog", packet)}
		for i := range list {
			list[i].User = "u" + list[i].Campaign + strconv.FormatInt(packet, 10)
		}
		return reversedForOdd(settler, list)
	},
}

const settlersAtOnce, rounds = 6, 40

func reversedForOdd(settler int, list []hongbao.Grant) []hongbao.Grant {
	if settler%2 == 1 {
		slices.Reverse(list)
	}
	return list
}

// testNoDeadlock settles batches that lock the same rows at once. All transactions lock in the same order, so the
// database reports no deadlock (F36). testDeadlock checks that a transaction survives a deadlock.
func testNoDeadlock(t *testing.T, newConfig backend) {
	for name, batch := range crowds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, newConfig(t))
			for _, id := range []string{"rain", "snow", "hail", "fog"} {
				f.create(t, id, 40*settlersAtOnce*rounds)
			}
			seen := &circles{Store: f.ledger.tables.Store}
			f.ledger.tables.Store = seen
			want := map[packetKey]bool{}
			for round := range rounds {
				var group errgroup.Group
				for settler := range settlersAtOnce {
					grants := batch(round, settler)
					for i := range grants {
						want[keyOf(&grants[i])] = true
					}
					group.Go(func() error { return errors.Join(f.Handle(context.Background(), testkit.Batch(grants))...) })
				}
				require.NoError(t, group.Wait())
				require.Zero(t, seen.found.Load(), "round %d: settlers took the same locks in different orders", round)
			}
			differences, err := f.books().CheckConservation(t.Context())
			require.NoError(t, err)
			require.Empty(t, differences)
			var settled int64
			for _, id := range []string{"rain", "snow", "hail", "fog"} {
				totals, _, err := f.books().Totals(t.Context(), id)
				require.NoError(t, err)
				settled += totals.Grants
			}
			require.EqualValues(t, len(want), settled)
		})
	}
}

func TestPostgresNeverDeadlocks(t *testing.T) {
	t.Parallel()
	testNoDeadlock(t, postgresConfig)
}

func TestMariaDBNeverDeadlocks(t *testing.T) {
	t.Parallel()
	testNoDeadlock(t, mariadbConfig)
}
