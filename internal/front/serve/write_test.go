package serve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao/internal/base/answers"
)

// TestWriteGrab checks that writeGrab and internal/base/answers write the same text for every answer.
func TestWriteGrab(t *testing.T) {
	t.Parallel()
	text := rapid.OneOf(rapid.StringMatching(`[!-~]{0,12}`), rapid.String())
	at := rapid.Custom(func(t *rapid.T) time.Time {
		return time.UnixMilli(rapid.Int64Range(-1, 1<<41).Draw(t, "ms")).UTC()
	})
	receipt := rapid.Custom(func(t *rapid.T) Receipt {
		return Receipt{rapid.Int64().Draw(t, "packet"), rapid.Int64().Draw(t, "amount"), text.Draw(t, "event"),
			at.Draw(t, "time"), text.Draw(t, "request"), text.Draw(t, "code")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a := GrabAnswer{
			Outcome: text.Draw(t, "outcome"), Currency: text.Draw(t, "currency"),
			Receipts: rapid.SliceOfN(receipt, 0, 3).Draw(t, "receipts"), Time: at.Draw(t, "time"),
			RequestID: text.Draw(t, "request"),
		}
		if rapid.Bool().Draw(t, "limited") {
			a.Limit = &LimitHit{By: text.Draw(t, "by"), Per: text.Draw(t, "per"), Max: rapid.Int64().Draw(t, "max")}
			if rapid.Bool().Draw(t, "resets") {
				a.Limit.Resets = at.Draw(t, "at")
			}
		}
		if rapid.Bool().Draw(t, "not started") {
			a.Starts = at.Draw(t, "starts")
		}
		want, err := answers.Marshal(&a)
		require.NoError(t, err)
		require.Equal(t, string(want), string(writeGrab(&a)))
	})
}
