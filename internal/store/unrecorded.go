package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// Unrecorded is an opening of a shard that an operator ordered while the ledger was down. It is kept in the shard's
// meta until it is recorded in the ledger.
type Unrecorded struct {
	Epoch int64 `json:"epoch"`
	// Seq is the shard's last event before the opening. The ledger may have a later event.
	Seq  int64 `json:"seq"`
	Last int64 `json:"last"` // the last seq that the opening skipped
	stream.Decision
	Lost string    `json:"lost"` // description of the loss that was known then
	At   time.Time `json:"at"`
}

// ErrUnrecorded says that a shard was opened while the ledger was down, and the opening is not yet recorded in the
// ledger. Until then, workers deliver nothing from the shard.
var ErrUnrecorded = errors.New("the shard was opened without the ledger, and waits for it")

const unrecordedField = "unrecorded"

func unrecordedText(list []Unrecorded) (string, error) {
	if len(list) == 0 {
		return "", nil
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// Unrecorded returns the openings that are not yet recorded in the ledger, the oldest first, and their text in Redis.
func (k *Shard) Unrecorded(ctx context.Context) (list []Unrecorded, text string, err error) {
	text, err = k.rdb.HGet(ctx, k.Keys.Meta(), unrecordedField).Result()
	if errors.Is(err, redis.Nil) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read what %s keeps for the ledger: %w", k.Keys.Meta(), Classify(err))
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) == 0 {
		return nil, "", hongbao.Errorf(hongbao.ClassBroken, "redis key %s, field %s is %.100q, which no opening wrote: find "+
			"out who can write to Redis: %w", k.Keys.Meta(), unrecordedField, text, errors.Join(err, ErrUnrecorded))
	}
	return list, text, nil
}

// CheckRecorded returns ErrUnrecorded if the shard has an opening that is not recorded in the ledger.
func (k *Shard) CheckRecorded(ctx context.Context) error {
	list, _, err := k.Unrecorded(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	last := list[len(list)-1]
	return hongbao.Outagef(hongbao.ClassTransient, "%w: %q opened it at %s (%q). Its grants continue once a worker has "+
		"noted that in the ledger", ErrUnrecorded, last.By, last.At.UTC().Format(time.RFC3339), last.Why)
}

// Recorded removes the openings with the given text, because the ledger has them. It does nothing if there are newer
// ones.
func (k *Shard) Recorded(ctx context.Context, text string) error {
	_, err := k.run(ctx, keptScript, []string{k.Keys.Meta()}, []any{unrecordedField, text})
	return err
}

// FreezeLate freezes an open shard because an event is known that an opening has lost; see Frozen.Late.
func (k *Shard) FreezeLate(ctx context.Context, seq int64) error {
	skipped, err := k.skipped(ctx)
	if err != nil {
		return err
	}
	_, err = k.freeze(ctx, reasons{late: lateEvent{skipped: seq}, skipped: skipped})
	return err
}
