package cli

import (
	"database/sql"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/store/storetest"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A campaign gives one packet to each user. After a loss the app repeats a user's request automatically, and the user
// gets another packet than the announced one, which is withheld. A person grants the announced one, too. It is paid, and
// audit, close and refund accept it. Without the person's decision in the journal the audit reports the user.
func TestHoleAboveTheLimit(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	for name, shards := range map[string]int{"one shard": 1, "two shards": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := setup(t, options{redis: testkit.NewRedis(t, testkit.RedisOptions{}), shards: shards})
			spec := "sponsor:"
			if shards > 1 {
				spec = "shards: 2\nsponsor:"
			}
			d.campaign("rain", 10, 1000, "sponsor:", spec)
			number := d.withholds("rain", 2)[0]
			places := d.store.Places("rain", shards)
			storetest.Grab(t, places[len(places)-1].Shard, "rain", "told/r-1") // the retry
			w := d.start("work")
			d.quiet()
			if shards > 1 {
				d.ok("campaign", "pause", "rain", "--by", "ann", "--why", "packets are withheld")
			}
			grant := []string{"hole", "grant", "rain", "--packet", number, "--user", "told", "--by", "ann", "--why", "the app's log"}
			d.refused(1, append(grant, "--request-id", "r-1", "--above-limit"), "without --request-id the user gets this packet, too")
			d.refused(1, grant, "has reached the campaign's limit", "add --above-limit")
			grant = append(grant, "--above-limit")
			require.Contains(t, d.ok(grant...), "user told has packet "+number)
			d.quiet()
			require.Contains(t, d.ok("receipts", "rain", "told"), "2 receipts")
			d.ok("audit")

			db, err := sql.Open("sqlite", d.ledgerFile())
			require.NoError(t, err)
			defer db.Close()
			forgotten, err := db.ExecContext(t.Context(), `DELETE FROM journal WHERE details LIKE '%above_limit%' AND outcome = 'done'`)
			require.NoError(t, err)
			rows, err := forgotten.RowsAffected()
			require.NoError(t, err)
			require.EqualValues(t, 1, rows)
			differs := d.audit(exitFound)
			require.Equal(t, map[model.DifferenceKind]int64{audit.OverHold: 1}, differs.Found)
			require.Contains(t, d.refused(exitFound, []string{"audit"}).out, "repeat that command")
			d.ok(grant...)
			d.ok("audit")
			d.ok("campaign", "close", "rain", "--early")
			d.quiet()
			_, left, _ := strings.Cut(d.refused(2, []string{"campaign", "refund", "rain"}).out, "--amount ")
			d.ok("campaign", "refund", "rain", "--amount", strings.TrimSpace(left))
			d.ok("audit")
			w.stop(syscall.SIGTERM)
		})
	}
}
