package judge

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Plant is a difference that is made in a store.
type Plant struct {
	Name  string
	SQL   string // of the ledger
	Topic bool   // the first grant of the topic is added again
	Redis string // the key of a campaign of which an element disappears
}

// Plants returns differences that the judge and the audit must both name.
func Plants() []Plant {
	const first = ` WHERE (campaign, packet) = (SELECT campaign, packet FROM grants ORDER BY campaign, packet LIMIT 1)`
	return []Plant{
		{Name: "a grant is missing in the ledger", SQL: `DELETE FROM grants` + first},
		{Name: "a grant has another amount in the ledger", SQL: `UPDATE grants SET amount = amount + 1` + first},
		{Name: "a grant has another user in the ledger", SQL: `UPDATE grants SET user_id = 'mallory'` + first},
		{Name: "a campaign's sum is wrong in the ledger", SQL: `UPDATE campaign SET granted = granted - 1 WHERE granted > 0`},
		{Name: "a grant is twice in the topic", Topic: true},
		{Name: "a receipt is missing in Redis", Redis: "receipts"},
	}
}

// Do makes a difference.
func (j *Judge) Do(ctx context.Context, p *Plant) error {
	switch {
	case p.SQL != "":
		result, err := j.db.ExecContext(ctx, p.SQL)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return errors.Join(errors.New("no row was changed"), err)
		}
		return nil
	case p.Topic:
		if len(j.copies) == 0 {
			return errors.New("the topic has no grant")
		}
		r := j.copies[0].record
		again := &kgo.Record{Topic: j.topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers}
		return j.kafka.ProduceSync(ctx, again).FirstErr()
	}
	keys, err := j.rdb.Keys(ctx, "hb:{*}:c:*:"+p.Redis).Result()
	if err != nil {
		return err
	}
	for _, key := range keys {
		users, err := j.rdb.HKeys(ctx, key).Result()
		if err == nil && len(users) > 0 {
			return j.rdb.HDel(ctx, key, users[0]).Err()
		}
	}
	return fmt.Errorf("no campaign has %s", p.Redis)
}
