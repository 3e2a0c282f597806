package ledger

import "testing"

// cases are what every database must do.
var cases = map[string]func(*testing.T, *fixture){
	"an unknown campaign waits":                   testUnknownCampaignWaits,
	"grants of disowned campaigns are put aside":  testPutAside,
	"a ledger is founded once":                    testFound,
	"founded by many at once":                     testFoundTogether,
	"a ledger in use is not founded":              testFoundInUse,
	"a shard's epoch and server":                  testShardState,
	"losses that a person accepted":               testAcceptedLosses,
	"pauses and limits":                           testControls,
	"the highest seq of a shard":                  testHighestSeq,
	"the events that the ledger knows":            testEventsIn,
	"a repeat changes nothing":                    testRepeat,
	"one batch, many campaigns":                   testManyCampaigns,
	"coupons without a value":                     testCoupons,
	"more than one page and one insert":           testLongBatch,
	"altered replays (F37)":                       testAltered,
	"twice in one batch":                          testTwiceInBatch,
	"ids are compared byte by byte":               testIDs,
	"not planned":                                 testNotPlanned,
	"the plan can't be asked":                     testPlanFails,
	"malformed grants":                            testMalformed,
	"forged overdraft (F38)":                      testOverdraft,
	"forged sums above any amount":                testOverflow,
	"a user's balance can't overflow":             testBalanceOverflow,
	"a refunded campaign pays nothing (B41)":      testAfterRefund,
	"coupons after the refund":                    testCouponAfterRefund,
	"the refund waits for every grant (F59)":      testRefundWaits,
	"a close that can't be":                       testRefundConflicts,
	"a refund that the close can't be for (B41)":  testRefundBehindTheClose,
	"a refund without a campaign":                 testRefundUnknown,
	"a refund without grants that were decided":   testRefundMissing,
	"a ledger written by hand is not refunded":    testRefundTampered,
	"one refund of many calls (F58)":              testRefundTogether,
	"a refund that dies at each step (F57)":       testRefundDies,
	"refund and settlers at once":                 testRefundAmongSettlers,
	"differences are acknowledged":                testAcknowledge,
	"a campaign is cancelled before its load":     testCancel,
	"a cancel and a load at once":                 testCancelAmongLoads,
	"a campaign that Redis lost is refunded":      testRefundLost,
	"a lost campaign is refunded by many at once": testRefundLostTogether,
	"the refund of a lost campaign dies":          testRefundLostDies,
	"a refund of a campaign on three shards":      testRefundPlaces,
	"a refund of three shards dies":               testRefundPlacesDies,
	"a campaign that one of three shards lost":    testRefundLostPlaces,
	"random ends on many shards":                  testRefundModel,
	"the seed is revealed after the refund":       testReveal,
	"a user's grants":                             testUserGrants,
	"guards in the database":                      testGuards,
	"overlapping settlers":                        testOverlapping,
	"random histories":                            testModel,
	"locks in a circle (F36)":                     testDeadlock,
	"the caller gives up":                         testCancelled,
	"a campaign is created once":                  testCreate,
	"another campaign under the same id":          testCreateConflict,
	"campaigns that can't be":                     testCreateInvalid,
	"created by many at once":                     testCreateTogether,
	"campaigns are listed":                        testCampaigns,
	"packets are added":                           testTopUp,
	"a top-up that can't be":                      testTopUpRefused,
	"a top-up ordered by many at once":            testTopUpTogether,
	"a top-up and a close at once":                testTopUpAmongCloses,
	"a top-up that dies at each step":             testTopUpDies,
	"a settler that knows fewer packets":          testSettleAdded,
	"the refund of what was added":                testRefundAdded,
	"what is recorded":                            testRecorded,
	"grants by seq":                               testBySeq,
	"grants that the ledger lacks":                testLacks,
	"what a day moved":                            testDay,
	"the day of a refund":                         testDayRefund,
	"a day of many pages":                         testDayPages,
	"a day that the ledger contradicts":           testDayBroken,
	"a day with credits that are not recorded":    testDayUnrecorded,
	"fn's error ends an iteration":                testIterationError,
	"totals":                                      testTotals,
	"the shape of a campaign":                     testShape,
	"an unknown campaign and account":             testUnknown,
	"quarantine is decided once":                  testResolve,
	"a sealed campaign is not read again":         testSeal,
	"a campaign is archived":                      testArchive,
	"an archive that is refused":                  testArchiveRefused,
	"an archive stays audited":                    testArchiveStays,
	"an archive among those who read":             testArchiveAmongReaders,
	"every difference is found":                   testDifferences,
	"a row deleted by hand stops the shard":       testDeletedByHand,
	"opened again, and by many at once":           testReopen,
	"a newer schema":                              testNewerSchema,
	"a database without tables is refused":        testNotFounded,
	"a schema with another past is refused":       testOtherSchema,
	"a failed migration leaves nothing":           testFailedMigration,
	"a grant that was settled after quarantine":   testSettledAfterQuarantine,
	"a decision pays once from the reserve (F37)": testDecidePays,
	"what may still be settled is not paid":       testDecideRefuses,
	"nobody is paid a packet twice by decisions":  testDecidePaysOnce,
	"no more is paid than was planned":            testDecidePaysNoMore,
	"a grant that is void stays void":             testVoidStaysVoid,
	"a hook that fails is called again":           testHookFails,
	"decided by many at once":                     testDecideTogether,
	"a credit is booked once":                     funded(testCreditOnce),
	"a key or reference that was used":            funded(testCreditReused),
	"credits in one call":                         funded(testCreditBatch),
	"a balance above any amount":                  funded(testCreditTooMuch),
	"credits booked by many at once":              funded(testCreditTogether),
	"a statement in pages":                        funded(testStatement),
	"a statement that is followed":                funded(testStatementFollowed),
	"balances that are not their credits":         funded(testCreditDifferences),
	"credits, accounts and funds that are gone":   funded(testCreditRows),
	"codes are stored once, in order":             testCodes,
	"codes are drawn anew until they are new":     testCodesTaken,
	"codes of many processes at once":             testCodesTogether,
	"codes that can't be":                         testCodesInvalid,
	"grants have their codes":                     testGrantCodes,
	"credits that may be booked at a remote":      testPending,
	"a credit that is as old as its grant":        testPendingSinceGrant,
	"what was put aside is recorded (B41)":        testPendingQuarantined,
	"a credit is begun by one":                    testPendingTogether,
	"the refund waits for pending credits":        testRefundPending,
	"a client's keys are its own":                 funded(testCreditClients),
	"a client's credits are listed":               funded(testCreditList),
	"nobody credits more than was funded":         testFundExhausted,
	"a repeat after the fund is exhausted":        testRepeatOfExhausted,
	"a fund is filled once":                       testFundOnce,
	"tokens of clients":                           testTokens,
	"API keys":                                    testKeys,
	"an API key rotated by many at once":          testKeysTogether,
	"a request is done once":                      testOnce,
	"a request that fails":                        testOnceFails,
	"a request that is under way":                 testOnceUnderWay,
	"a request sent by many at once":              testOnceTogether,
	"sessions of the console":                     testSessions,
	"the journal":                                 testJournal,
	"the journal beside what it tells of":         testJournalTogether,
	"credits one by one, and the database away":   funded(testCreditAway),
}

// conformance runs each case on a new, empty database.
func conformance(t *testing.T, newConfig backend) {
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, newFixture(t, newConfig(t)))
		})
	}
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	conformance(t, sqliteConfig)
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	conformance(t, postgresConfig)
}

func TestMariaDB(t *testing.T) {
	t.Parallel()
	conformance(t, mariadbConfig)
}
