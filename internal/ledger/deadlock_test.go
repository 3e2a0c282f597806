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
)

// circles is a store that counts how often the database reports a deadlock. The ledger repeats such a transaction,
// so the count is the only trace.
type circles struct {
	store
	found atomic.Int64
}

func (s *circles) write(ctx context.Context, fn func(txn) ([]stmt, error)) error {
	err := s.store.write(ctx, fn)
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	if errors.As(err, &pg) && pg.Code == "40P01" || errors.As(err, &my) && my.Number == 1213 {
		s.found.Add(1)
	}
	return err
}

// crowds are batches that are settled at once, in rounds. Each function returns the batch of a settler in a round. All
// batches of a round take the same locks; those of every second settler list them in the opposite order.
var crowds = map[string]func(round, settler int) []hongbao.Grant{
	"the same packets": func(round, settler int) []hongbao.Grant {
		return turned(settler, grantsOf("rain", int64(round*40+1), int64(round*40+40)))
	},
	"the same accounts": func(round, settler int) []hongbao.Grant {
		first := int64((round*settlersAtOnce+settler)*40 + 1)
		list := grantsOf("rain", first, first+39)
		for i := range list { // the packets are in order, so only the users' order is opposite
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
		return turned(settler, list)
	},
}

const settlersAtOnce, rounds = 6, 40

func turned(settler int, list []hongbao.Grant) []hongbao.Grant {
	if settler%2 == 1 {
		slices.Reverse(list)
	}
	return list
}

// testNoDeadlock settles batches that take the same locks at once. All transactions take them in one order, so the
// database never has to break a deadlock (F36). testDeadlock checks that a transaction survives a deadlock.
func testNoDeadlock(t *testing.T, newConfig backend) {
	for name, batch := range crowds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, newConfig(t))
			for _, id := range []string{"rain", "snow", "hail", "fog"} {
				f.create(t, id, 40*settlersAtOnce*rounds)
			}
			seen := &circles{store: f.ledger.store}
			f.ledger.store = seen
			want := map[packetKey]bool{}
			for round := range rounds {
				var group errgroup.Group
				for settler := range settlersAtOnce {
					grants := batch(round, settler)
					for i := range grants {
						want[keyOf(&grants[i])] = true
					}
					group.Go(func() error { return errors.Join(f.Handle(context.Background(), grants)...) })
				}
				require.NoError(t, group.Wait())
				require.Zero(t, seen.found.Load(), "round %d: settlers took the same locks in different orders", round)
			}
			differences, err := f.ledger.CheckConservation(t.Context())
			require.NoError(t, err)
			require.Empty(t, differences)
			var settled int64
			for _, id := range []string{"rain", "snow", "hail", "fog"} {
				totals, _, err := f.ledger.Totals(t.Context(), id)
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
