package ops

import (
	"errors"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/operate/closing"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/ops/find"
	"github.com/hongbao-project/hongbao/internal/store"
)

// codes maps errors to error codes. The first matching entry is used.
var codes = []struct {
	err  error
	code string
}{
	{access.ErrUnauthorized, "unauthorized"}, {access.ErrForbidden, "forbidden"}, {access.ErrWhole, "forbidden"},
	{access.ErrMayNotSpend, "forbidden"},
	{access.ErrKeyRequired, "idempotency_key_required"}, {access.ErrKeyReused, "idempotency_key_reused"},
	{access.ErrUnderWay, "idempotency_key_in_use"}, {access.ErrNotInScope, "unknown_campaign"}, {ledger.ErrNoCampaign,
		"unknown_campaign"},
	{ledger.ErrCampaignExists, "campaign_exists"}, {ledger.ErrNotRefunded, "not_refunded"},
	{ledger.ErrLoadingBegun, "loading_begun"},
	{ledger.ErrFundedOtherwise, "funded_otherwise"}, {ledger.ErrOrderUsed, "order_reused"},
	{ledger.ErrTopUpOpen, "top_up_open"},
	{ledger.ErrNotInQuarantine, "unknown_quarantine"}, {ledger.ErrDecided, "decided_otherwise"}, {ledger.ErrNotPayable,
		"not_payable"},
	{deadletter.ErrNoLetter, "unknown_letter"}, {replay.ErrOtherReplay, "replay_differs"},
	{closing.ErrAmount, "wrong_amount"}, {closing.ErrMissing, "grants_missing"},
	{find.ErrBusy, "busy"}, {store.ErrFrozen, "frozen"}, {store.ErrLost, "campaign_lost"}, {store.ErrNotClosed,
		"not_closed"},
	{store.ErrNotInRedis, "not_loaded"},
}

// CodeOf returns the error code of a refusal, or "" for another error.
func CodeOf(err error) string {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return ""
}

// IsFrozen reports whether a frozen shard is the reason of the error.
func IsFrozen(err error) bool { return errors.Is(err, store.ErrFrozen) }

// RedisSchema returns the version of the key layout that this build writes to Redis.
func RedisSchema() int { return store.SchemaVersion }
