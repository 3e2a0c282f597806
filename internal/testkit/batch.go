package testkit

import (
	"math"

	"github.com/hongbao-project/hongbao"
)

// Batch returns the grants as a batch of their shard. Its epoch is the lowest of the grants' epochs, at least 1, so each
// grant keeps its own.
func Batch(grants []hongbao.Grant) hongbao.Batch {
	epoch := int64(math.MaxInt64)
	for i := range grants {
		epoch = min(epoch, grants[i].Epoch)
	}
	if len(grants) == 0 {
		epoch = 1
	}
	return BatchIn(max(epoch, 1), grants)
}

// BatchIn returns the grants as a batch that was read in an epoch.
func BatchIn(epoch int64, grants []hongbao.Grant) hongbao.Batch {
	b := hongbao.Batch{Epoch: epoch, Grants: grants}
	if len(grants) > 0 {
		b.Shard = grants[0].Shard
	}
	return b
}
