package stream

import (
	"fmt"

	"github.com/hongbao-project/hongbao"
)

// Opening identifies one opening of a shard. Work on entries that were read in it changes nothing after the next one.
type Opening struct {
	Shard int
	Epoch int64 // 0 if the work does not depend on an opening
}

// CheckBatch returns an error if the caller has built the batch wrongly.
func CheckBatch(b *hongbao.Batch) error {
	var err error
	if b.Shard < 0 || b.Epoch < 1 {
		err = fmt.Errorf("its shard is %d and its epoch %d: want 0 or more, and 1 or more", b.Shard, b.Epoch)
	}
	for i := 0; i < len(b.Grants) && err == nil; i++ {
		if g := &b.Grants[i]; g.Shard != b.Shard {
			err = fmt.Errorf("grant %s is of another shard than %d", g.EventID(), b.Shard)
		}
	}
	if err == nil {
		return nil
	}
	return hongbao.Errorf(hongbao.ClassBroken, "a batch of %d grants can't be delivered: %w", len(b.Grants), err)
}
