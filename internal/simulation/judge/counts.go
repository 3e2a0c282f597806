package judge

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// chunk is how many done bits a key has.
const chunk = 1 << 16

// countRules demands that the counts of a campaign are those of its done bits: on each place, and for each sink. A sink
// that came or went has no bit for what it does not owe.
func (j *Judge) countRules(ctx context.Context, v *verdict, id string) error {
	places, err := j.rdb.Keys(ctx, "hb:{*}:c:"+id).Result()
	if err != nil {
		return fmt.Errorf("read the places of %s: %w", id, err)
	}
	for _, place := range places {
		fields, err := j.rdb.HGetAll(ctx, place).Result()
		if err != nil {
			return fmt.Errorf("read %s: %w", place, err)
		}
		var h held
		if err := j.readReceipts(ctx, place+":receipts", id, &h); err != nil {
			return err
		}
		for _, sink := range []string{"balance", "kafka"} {
			if sink == "kafka" && v.facts.SinkMoves {
				continue
			}
			bits, err := j.countBits(ctx, strings.TrimSuffix(place, "c:"+id), sink, h.receipts)
			if err != nil {
				return err
			}
			done, _ := strconv.Atoi(fields["done:"+sink])
			dead, _ := strconv.Atoi(fields["dead:"+sink])
			if done+dead != bits {
				v.missing(id, "%s counts %d done and %d dead for sink %s, and %d bits are set", place, done, dead, sink, bits)
			}
		}
	}
	return nil
}

// countBits returns for how many of the grants of a place the sink's done bit is set, or was before a trim.
func (j *Judge) countBits(ctx context.Context, shard, sink string, grants []grant) (n int, err error) {
	floor, err := j.rdb.HGet(ctx, shard+"meta", "done_floor").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, fmt.Errorf("read the done floor of %s: %w", shard, err)
	}
	for i := range grants {
		seq := grants[i].Seq
		key := fmt.Sprintf("%sdone:%s:%d", shard, sink, seq/chunk)
		bit, err := j.rdb.GetBit(ctx, key, seq%chunk).Result()
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", key, err)
		}
		if bit == 1 || seq < floor {
			n++
		}
	}
	return n, nil
}
