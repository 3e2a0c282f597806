package store_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// corpus returns the tests whose calls TestCorpus compares. They make the same calls in each run, but for times and
// random names. TestScriptsOnWrongTypes calls every script.
func corpus() map[string]func(t *testing.T) {
	return map[string]func(t *testing.T){
		"ScriptsOnWrongTypes": TestScriptsOnWrongTypes, "ScriptsRepeated": TestScriptsRepeated,
		"ScriptsOfAnEarlierEpoch": TestScriptsOfAnEarlierEpoch, "ScriptsOnMissingKeys": scriptsOnMissingKeys,
		"AckEntries": TestAckEntries, "LoadChunks": TestLoadChunks,
		"LoadNoticesForeignStock": TestLoadNoticesForeignStock, "States": TestStates,
		"CompleteOfADeletedClaim": TestCompleteOfADeletedClaim, "ClaimRepeated": TestClaimRepeated,
		"ClaimGarbled": TestClaimGarbled, "CloseEndsACampaign": TestCloseEndsACampaign,
		"CloseRefuses": TestCloseRefuses, "ClosedBeforeItsWindow": TestClosedBeforeItsWindow,
		"RefundedAndRetired": TestRefundedAndRetired, "LockHasOneOwner": TestLockHasOneOwner,
		"GroupFinished":                        TestGroupFinished,
		"GroupFinishedPassesOverForgedEntries": TestGroupFinishedPassesOverForgedEntries,
		"PutCodes":                             TestPutCodes, "LeftoverCodes": TestLeftoverCodes, "Terms": TestTerms,
		"TermsOfAStub": TestTermsOfAStub, "FillCodes": TestFillCodes, "RetireTakesCodes": TestRetireTakesCodes,
		"RestoreControl": TestRestoreControl, "ControlKept": TestControlKept,
		"SumsThatDoNotFit": TestSumsThatDoNotFit, "Dead": TestDead, "DeadWholeEntry": TestDeadWholeEntry,
		"DeadLettersOfALargeEntry": TestDeadLettersOfALargeEntry, "WinnersAreNotFinal": TestWinnersAreNotFinal,
		"WinnersOfGenerations": TestWinnersOfGenerations, "PutFilter": TestPutFilter,
		"FilterIsALeftover": TestFilterIsALeftover, "TopUpOfAPlace": TestTopUpOfAPlace,
		"EmptyGenerationOfAPlace": TestEmptyGenerationOfAPlace, "AnnounceRefuses": TestAnnounceRefuses,
		"LoadRefusesAnotherSum": TestLoadRefusesAnotherSum, "OnePlaceOfSeveral": TestOnePlaceOfSeveral,
		"GrabFacts": TestGrabFacts, "GrabUnknownAndLoading": TestGrabUnknownAndLoading,
		"JumpIsNoBacklog":                 TestJumpIsNoBacklog,
		"JumpIsNoBacklogOfPendingEntries": TestJumpIsNoBacklogOfPendingEntries,
		"JumpTrimsNothingEarly":           TestJumpTrimsNothingEarly, "TakeOfDeadWorkers": TestTakeOfDeadWorkers,
		"TakeIsBounded": TestTakeIsBounded, "Renew": TestRenew, "Parked": TestParked, "Forget": TestForget,
		"BeginReplay": TestBeginReplay, "ClaimWithOtherDoneBits": TestClaimWithOtherDoneBits,
		"CompleteMarksDeadLetters": TestCompleteMarksDeadLetters, "SkippedRanges": TestSkippedRanges,
		"EntriesLeavesOutWhatCannotBeRead": TestEntriesLeavesOutWhatCannotBeRead,
		"TrimMissingGroupBlocks":           TestTrimMissingGroupBlocks,
		"TrimMaxEventsNeverPassesPending":  TestTrimMaxEventsNeverPassesPending,
		"RepeatedWithholdingNearTheEnd":    TestRepeatedWithholdingNearTheEnd,
		"MarkLeavesClaims":                 TestMarkLeavesClaims,
		"NoOpeningWithoutAllEvidence":      TestNoOpeningWithoutAllEvidence,
		"RegistrationStaysOnAFrozenShard":  TestRegistrationStaysOnAFrozenShard,
		"ReceiptsStayInOrderOfTime":        TestReceiptsStayInOrderOfTime, "Receipts": TestReceipts,
		"Decide": TestDecide, "GrantThatCannotComeBack": TestGrantThatCannotComeBack,
		"TrimIgnoresForgedSeq": TestTrimIgnoresForgedSeq, "TrimRetentionAndBounds": TestTrimRetentionAndBounds,
		"WinnersAfterARestore": TestWinnersAfterARestore, "grabs": grabHistories,
	}
}

// scriptsOnMissingKeys calls each script with a missing key at each of its KEYS.
func scriptsOnMissingKeys(t *testing.T) {
	for name, c := range scriptCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, n := 0, 1; i < n; i++ {
				b := setup(t)
				c.setup(t, b)
				keys := c.keys(b)
				n = len(keys)
				require.NoError(t, b.rdb.Del(t.Context(), keys[i]).Err())
				_ = c.call(t.Context(), b)
			}
		})
	}
}

// grabHistories makes random grabs, changes of the campaign and top-ups. No campaign begins or ends meanwhile.
func grabHistories(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			h := &history{r: rand.New(rand.NewPCG(seed, 2)), b: setup(t), users: 20, name: fmt.Sprint("grabs ", seed),
				seen: map[hongbao.Outcome]int{}, limits: map[hongbao.Limit]bool{}}
			h.k = h.b.k
			c := h.spec()
			now := time.Now().Truncate(time.Millisecond)
			c.From, c.To = now.Add(-30*time.Hour), now.Add(30*time.Hour)
			var err error
			h.m, err = newModel(c, h.b.load(t, c))
			require.NoError(t, err)
			h.run(t)
		})
	}
}
