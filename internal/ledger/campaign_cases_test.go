package ledger

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	kept "github.com/hongbao-project/hongbao/internal/ledger/access"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/db/mysql"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func testCreate(t *testing.T, f *fixture) {
	c := testCampaign(t, "rain", 10)
	first, err := f.ledger.CreateCampaign(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, c, first.Campaign)
	require.Equal(t, model.MoneyFunded, first.State)
	require.Equal(t, fundedFor(10), first.Funded)
	require.NotZero(t, first.Created)
	second, err := f.ledger.CreateCampaign(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, first, second)
	f.holds(t, "rain", nil)
	require.Equal(t, fundedFor(10), f.balance(t, tables.PoolAccount("rain")), "funded once")

	f.settles(t, grantsOf("rain", 1, 2)...)
	stored, found, err := f.ledger.Campaign(t.Context(), "rain")
	require.NoError(t, err)
	require.True(t, found)
	first.Granted, first.Grants = fundedFor(2), 2
	require.Equal(t, first, stored)
}

func testCreateConflict(t *testing.T, f *fixture) {
	c := testCampaign(t, "rain", 10)
	_, err := f.ledger.CreateCampaign(t.Context(), c)
	require.NoError(t, err)
	otherSpec, otherSeed, otherHash := testCampaign(t, "rain", 11), c, c
	otherSeed.Seed[31]++
	otherHash.Hash = "other"
	for _, other := range []Campaign{otherSpec, otherSeed, otherHash} {
		_, err := f.ledger.CreateCampaign(t.Context(), other)
		require.ErrorIs(t, err, ErrCampaignExists)
		require.ErrorContains(t, err, "campaign_exists_with_other_spec")
		require.Equal(t, hongbao.ClassConflict, hongbao.ClassOf(err))
		require.NotContains(t, err.Error(), "seed of")
	}
	stored, _, err := f.ledger.Campaign(t.Context(), "rain")
	require.NoError(t, err)
	require.Equal(t, c, stored.Campaign)
	f.holds(t, "rain", nil)
}

func testCreateInvalid(t *testing.T, f *fixture) {
	_, err := f.ledger.CreateCampaign(t.Context(), Campaign{Canonical: []byte("{")})
	require.Equal(t, hongbao.ClassPermanent, hongbao.ClassOf(err))
	for _, problem := range []string{"id: ", "sponsor: ", "0 packets", "hash is empty", "all zeros", "not JSON"} {
		require.ErrorContains(t, err, problem, "the error names every problem")
	}
	c := testCampaign(t, "rain", 10)
	c.Spec.Total++
	_, err = f.ledger.CreateCampaign(t.Context(), c)
	require.ErrorContains(t, err, "does not match the specification")
	var list []StoredCampaign
	for c, err := range f.ledger.EachCampaign(t.Context(), "") {
		require.NoError(t, err)
		list = append(list, *c)
	}
	require.Empty(t, list)
}

func testCreateTogether(t *testing.T, f *fixture) {
	c := testCampaign(t, "rain", 10)
	group, ctx := errgroup.WithContext(t.Context())
	for range 8 {
		group.Go(func() error {
			_, err := f.ledger.CreateCampaign(ctx, c)
			return err
		})
	}
	require.NoError(t, group.Wait())
	f.holds(t, "rain", nil)
	require.Equal(t, -fundedFor(10), f.balance(t, tables.SponsorAccount("acme", testCurrency)))
}

func testCampaigns(t *testing.T, f *fixture) {
	for i := range 5 {
		f.create(t, fmt.Sprintf("c%d", i), int64(i)+1)
	}
	var ids []string
	for _, page := range []int{1, 2, 5, 6} {
		ids = nil
		for c, err := range f.ledger.eachCampaign(t.Context(), "c0", page) {
			require.NoError(t, err)
			ids = append(ids, c.Spec.ID)
			require.Equal(t, fundedFor(c.Spec.Packets), c.Funded)
		}
		require.Equal(t, []string{"c1", "c2", "c3", "c4"}, ids, page)
	}
	for c, err := range f.ledger.EachCampaign(t.Context(), "") {
		require.NoError(t, err)
		require.Equal(t, "c0", c.Spec.ID)
		break
	}
}

func testReopen(t *testing.T, f *fixture) {
	f.create(t, "rain", 10)
	f.settles(t, grantsOf("rain", 1, 2)...)
	f.tamper(t, db.Stmt{SQL: `DROP TABLE hongbao_schema`}, db.Stmt{SQL: `DROP TABLE console_session`}, db.Stmt{SQL: `DROP TABLE job`},
		db.Stmt{SQL: `DROP TABLE api_key`}, db.Stmt{SQL: `DROP TABLE journal`}, db.Stmt{SQL: `DROP TABLE idempotency`},
		db.Stmt{SQL: `DROP TABLE quarantine`},
		db.Stmt{SQL: `DROP TABLE seal`}, db.Stmt{SQL: `DROP TABLE refund_close`}, db.Stmt{SQL: `DROP TABLE refund`},
		db.Stmt{SQL: `DROP TABLE generation`}, db.Stmt{SQL: `DROP TABLE archive`}, db.Stmt{SQL: `DROP TABLE archive_shard`},
		db.Stmt{SQL: `DROP TABLE transfer`}, db.Stmt{SQL: `DROP TABLE grants`}, db.Stmt{SQL: `DROP TABLE account`},
		db.Stmt{SQL: `DROP TABLE campaign`}, db.Stmt{SQL: `DROP TABLE credit`}, db.Stmt{SQL: `DROP TABLE credit_account`},
		db.Stmt{SQL: `DROP TABLE credit_fund`},
		db.Stmt{SQL: `DROP TABLE credit_funding`}, db.Stmt{SQL: `DROP TABLE code`},
		db.Stmt{SQL: `DROP TABLE pending`}, db.Stmt{SQL: `DROP TABLE deployment`}, db.Stmt{SQL: `DROP TABLE shard`},
		db.Stmt{SQL: `DROP TABLE disowned`}, db.Stmt{SQL: `DROP TABLE accepted_loss`}, db.Stmt{SQL: `DROP TABLE control`},
		db.Stmt{SQL: `DROP TABLE owed`}, db.Stmt{SQL: `DROP TABLE acknowledged`}, db.Stmt{SQL: `DROP TABLE fence`},
		db.Stmt{SQL: `DROP TABLE topic_base`},
		db.Stmt{SQL: `DROP TABLE archive_copy`}, db.Stmt{SQL: `DROP TABLE seal_seqs`})
	var group errgroup.Group
	for range 6 { // all calls find no tables, but only one migrates
		group.Go(func() error {
			_, err := Migrate(context.Background(), f.config)
			return err
		})
	}
	require.NoError(t, group.Wait())
	again := newFixture(t, f.config)
	again.create(t, "rain", 10)
	again.settles(t, grantsOf("rain", 1, 2)...)
	newFixture(t, f.config).holds(t, "rain", grantsOf("rain", 1, 2))
}

// An older build works with a newer schema until a migration raises the lowest supported version.
func testNewerSchema(t *testing.T, f *fixture) {
	row := func(version, lowest int64) db.Stmt {
		return db.Stmt{SQL: `INSERT INTO hongbao_schema (version, name, sum, lowest, applied_at) VALUES ($1, '0099_future.sql', 'x', $2, 7)`,
			Args: []any{version, lowest}}
	}
	f.tamper(t, row(98, 1))
	f.create(t, "rain", 2)
	open(t, f.config)
	newFixture(t, f.config).settles(t, grant("rain", 1))

	f.tamper(t, row(99, 98))
	_, err := Migrate(t.Context(), f.config)
	require.ErrorContains(t, err, "the schema has version 99 (0099_future.sql)")
	_, err = Open(t.Context(), f.config)
	require.ErrorContains(t, err, "the schema has version 99 (0099_future.sql)")
	require.ErrorContains(t, err, "upgrade this program")
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	newerSchemaStopsWriting(t, f)
	f.tamper(t, db.Stmt{SQL: `DELETE FROM hongbao_schema WHERE version = 99`})
	f.settles(t, grantsOf("rain", 1, 2)...)
	f.holds(t, "rain", grantsOf("rain", 1, 2))
}

// newerSchemaStopsWriting checks that a ledger which was opened before the schema changed refuses every kind of write.
// The transaction's first statement is an insert, a read, or sent with COMMIT; some run within Together.
func newerSchemaStopsWriting(t *testing.T, f *fixture) {
	refused := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, db.ErrNewerSchema)
		require.Equal(t, hongbao.ClassTransient, hongbao.ClassOf(err))
		require.True(t, hongbao.IsOutage(err), "no attempt is counted")
	}
	core, logs := observer.New(zap.ErrorLevel)
	f.ledger.log.Store(zap.New(core))
	for range 2 {
		errs := f.Handle(t.Context(), testkit.Batch([]hongbao.Grant{grant("rain", 2), grant("rain", 3)})) // packet 3 would go to quarantine
		require.Len(t, errs, 2)
		refused(errs[0])
		refused(errs[1])
	}
	alarms := logs.FilterField(zap.String("code", "newer_schema"))
	require.Equal(t, 1, alarms.Len(), "the alarm is logged once a minute")
	require.Empty(t, f.open(t), "nothing went to quarantine")
	refused(f.ledger.Disown(t.Context(), "snow", by("ann", "why")))
	refused(kept.Of(f.ledger.tables).EndSession(t.Context(), "hash"))
	_, err := f.ledger.CreateCampaign(t.Context(), testCampaign(t, "snow", 2))
	refused(err)
	refused(f.ledger.tables.Together(t.Context(), func(ctx context.Context) error {
		return kept.Of(f.ledger.tables).EndSession(ctx, "hash")
	}))
	refused(f.ledger.tables.Together(t.Context(), func(ctx context.Context) error {
		_, err := f.ledger.CreateCampaign(ctx, testCampaign(t, "snow", 2))
		return err
	}))
	_, found, err := f.ledger.Campaign(t.Context(), "snow")
	require.NoError(t, err, "the ledger can still read")
	require.False(t, found)
}

// Open never creates tables: new tables would look like a ledger in which no user was paid.
func testNotInitialized(t *testing.T, f *fixture) {
	f.tamper(t, db.Stmt{SQL: `UPDATE hongbao_schema SET applied_at = 0`})
	_, err := Open(t.Context(), f.config)
	require.ErrorContains(t, err, "it has version 0, this build needs version 15")
	f.tamper(t, db.Stmt{SQL: `DROP TABLE hongbao_schema`})
	for range 2 { // a failed Open creates no tables, so the second call fails, too
		_, err = Open(t.Context(), f.config)
		require.ErrorIs(t, err, ErrNotInitialized)
		require.ErrorContains(t, err, "`hongbao init`")
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	}
}

func testOtherSchema(t *testing.T, f *fixture) {
	f.tamper(t, db.Stmt{SQL: `UPDATE hongbao_schema SET sum = 'x'`})
	_, err := Open(t.Context(), f.config)
	require.ErrorContains(t, err, "belongs to another build")
	require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
}

// The tables of a build that was never released are refused, and nothing is changed: its schema had the versions 1 to 11.
// That build refuses these tables, too: it wants version 1 first, and the baseline excludes its version.
func testUnreleasedTables(t *testing.T, f *fixture) {
	numbers := func() (version, lowest int64) {
		_, _, err := tables.Ask("ask", `SELECT MAX(version), MAX(lowest) FROM hongbao_schema`, nil,
			func(s db.Scan) (int, error) { return 0, s(&version, &lowest) }).One(t.Context(), f.ledger.tables)
		require.NoError(t, err)
		return version, lowest
	}
	version, lowest := numbers()
	require.EqualValues(t, 15, version)
	require.EqualValues(t, 12, lowest)
	f.tamper(t, db.Stmt{SQL: `DELETE FROM hongbao_schema`}, db.Stmt{SQL: `DROP TABLE seal_seqs`})
	for i, name := range []string{"0001_ledger.sql", "0002_access.sql", "0003_closes.sql"} {
		f.tamper(t, db.Stmt{SQL: `INSERT INTO hongbao_schema (version, name, sum, lowest, applied_at) VALUES ($1, $2, 'x', 1, 7)`,
			Args: []any{int64(i + 1), name}})
	}
	_, migrated := Migrate(t.Context(), f.config)
	_, opened := Open(t.Context(), f.config)
	for _, err := range []error{migrated, opened} {
		require.ErrorIs(t, err, ErrUnreleased)
		require.ErrorContains(t, err, "they have schema version 3 (0003_closes.sql), and releases begin with version 12")
		require.ErrorContains(t, err, "Nothing was changed. Let ledger.dsn name an empty database or a new file")
		require.Equal(t, hongbao.ClassBroken, hongbao.ClassOf(err))
	}
	version, lowest = numbers()
	require.EqualValues(t, 3, version)
	require.EqualValues(t, 1, lowest)
	f.tamper(t, db.Stmt{SQL: `CREATE TABLE seal_seqs (campaign varchar(9))`}) // fails if Migrate has made the table
}

func testFailedMigration(t *testing.T, f *fixture) {
	steps := f.ledger.tables.Dialect.Migrations
	applied := db.Newest(steps)
	steps = append(steps, db.Step{Version: applied + 1, Name: "bad", Sum: "x",
		Lowest: applied, Script: "CREATE TABLE half (id bigint);\nCREATE TABLE half (id bigint);\n"})
	_, err := f.ledger.apply(t.Context(), steps)
	require.Error(t, err)
	if f.config.kind() == mysql.Name { // MySQL keeps the half-done step to resume it later
		f.tamper(t, db.Stmt{SQL: `DROP TABLE half`},
			db.Stmt{SQL: `DELETE FROM hongbao_schema WHERE name = 'bad' AND applied_at = 0`})
	}
	f.tamper(t, db.Stmt{SQL: `CREATE TABLE half (id bigint)`}) // succeeds only if the failed migration left no table
	_, err = Open(t.Context(), f.config)
	require.NoError(t, err)
}
