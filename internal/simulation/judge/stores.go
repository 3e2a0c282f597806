package judge

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
	_ "modernc.org/sqlite" // the ledger's driver
)

// Stores says where the stores are.
type Stores struct {
	Dial         func(ctx context.Context, network, address string) (net.Conn, error)
	Redis, Kafka string // addresses
	Topic        string
	Partitions   int
	Ledger       string // path of the SQLite file
	Rows         string // the same of the subscribers; "" if nobody subscribes
}

// Judge reads the stores.
type Judge struct {
	db     *sql.DB
	rows   *sql.DB // nil without subscribers
	rdb    *redis.Client
	kafka  *kgo.Client
	topic  string
	copies []copied // what the topic has so far
}

// copied is a grant in the topic, with its record.
type copied struct {
	grant
	record *kgo.Record
}

// grant is a grant as a store has it.
type grant struct {
	Campaign string `json:"campaign"`
	Packet   int64  `json:"packet"`
	User     string `json:"user"`
	Amount   int64  `json:"amount"`
	Shard    int    `json:"shard"`
	Seq      int64  `json:"seq"`
	Request  string `json:"request_id"`
}

// Open connects to the stores.
func Open(s *Stores) (*Judge, error) {
	db, err := openFile(s.Ledger)
	if err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	from := map[int32]kgo.Offset{}
	for i := range s.Partitions {
		from[int32(i)] = kgo.NewOffset().AtStart()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Kafka), kgo.Dialer(s.Dial), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.Topic: from}))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the topic: %w", err), db.Close())
	}
	j := &Judge{db: db, kafka: client, topic: s.Topic,
		rdb: redis.NewClient(&redis.Options{Addr: s.Redis, Dialer: s.Dial, ContextTimeoutEnabled: true})}
	if s.Rows != "" {
		j.rows, err = openFile(s.Rows)
	}
	return j, err
}

// Close closes the connections.
func (j *Judge) Close() {
	j.kafka.Close()
	_ = j.rdb.Close()
	_ = j.db.Close()
	if j.rows != nil {
		_ = j.rows.Close()
	}
}

// quietTopic is how long the topic must have nothing new, to be read whole.
const quietTopic = 500 * time.Millisecond

// readTopic adds the new records of the topic.
func (j *Judge) readTopic(ctx context.Context) error {
	for {
		short, cancel := context.WithTimeout(ctx, quietTopic)
		fetches := j.kafka.PollFetches(short)
		cancel()
		if fetches.Empty() {
			return ctx.Err()
		}
		var failed error
		fetches.EachRecord(func(r *kgo.Record) {
			if header(r, "ce_type") != "hongbao.grant.v1" {
				return
			}
			c := copied{record: r}
			if err := json.Unmarshal(r.Value, &c.grant); err != nil {
				failed = fmt.Errorf("record %d of partition %d: %w", r.Offset, r.Partition, err)
			}
			j.copies = append(j.copies, c)
		})
		if failed != nil {
			return failed
		}
	}
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// money is a campaign in the ledger.
type money struct {
	packets, funded, granted, grants, refunded int64
	state                                      string
	refunds, moved                             int64 // transfers to the sponsor, and their sum
}

// ended reports whether the campaign was refunded. Its stock and its withheld packets went back to the sponsor.
func (m *money) ended() bool { return m != nil && m.state == "refunded" }

// readLedger reads the grants and the campaigns in one transaction.
func (j *Judge) readLedger(ctx context.Context) (grants []grant, campaigns map[string]*money, err error) {
	tx, err := j.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, nil, fmt.Errorf("read the ledger: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	rows, err := tx.QueryContext(ctx, `SELECT campaign, packet, user_id, amount, shard, seq, request_id FROM grants`)
	if err != nil {
		return nil, nil, fmt.Errorf("read the grants: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var g grant
		if err := rows.Scan(&g.Campaign, &g.Packet, &g.User, &g.Amount, &g.Shard, &g.Seq, &g.Request); err != nil {
			return nil, nil, err
		}
		grants = append(grants, g)
	}
	if err := rows.Err(); err != nil {
		return nil, nil, err
	}
	campaigns = map[string]*money{}
	totals, err := tx.QueryContext(ctx, `SELECT id, packets, funded, granted, grants, refunded, state,
		(SELECT COUNT(*) FROM transfer AS t WHERE t.campaign = c.id AND t.kind = 'refund'),
		(SELECT COALESCE(SUM(amount), 0) FROM transfer AS t WHERE t.campaign = c.id AND t.kind = 'refund')
		FROM campaign AS c`)
	if err != nil {
		return nil, nil, fmt.Errorf("read the campaigns: %w", err)
	}
	defer totals.Close()
	for totals.Next() {
		var id string
		m := money{}
		if err := totals.Scan(&id, &m.packets, &m.funded, &m.granted, &m.grants, &m.refunded, &m.state, &m.refunds,
			&m.moved); err != nil {
			return nil, nil, err
		}
		campaigns[id] = &m
	}
	return grants, campaigns, totals.Err()
}

// held is what Redis has of a campaign.
type held struct {
	stock, withheld map[int64]int64 // from packet to amount
	receipts        []grant
}

// readRedis reads a campaign on all its places.
func (j *Judge) readRedis(ctx context.Context, id string) (*held, error) {
	h := &held{stock: map[int64]int64{}, withheld: map[int64]int64{}}
	keys, err := j.rdb.Keys(ctx, "hb:{*}:c:"+id+":*").Result()
	if err != nil {
		return nil, fmt.Errorf("read campaign %s in Redis: %w", id, err)
	}
	for _, key := range keys {
		_, part, _ := strings.Cut(key, ":c:"+id+":")
		switch part, _, _ = strings.Cut(part, ":"); part {
		case "stock":
			err = j.readPackets(ctx, key, h.stock)
		case "withheld":
			err = j.readPackets(ctx, key, h.withheld)
		case "receipts":
			err = j.readReceipts(ctx, key, id, h)
		}
		if err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (j *Judge) readPackets(ctx context.Context, key string, to map[int64]int64) error {
	list, err := j.rdb.LRange(ctx, key, 0, -1).Result()
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	for _, text := range list {
		n := numbers(text)
		to[n[0]] += n[1]
	}
	return nil
}

func (j *Judge) readReceipts(ctx context.Context, key, id string, h *held) error {
	all, err := j.rdb.HGetAll(ctx, key).Result()
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	for user, text := range all {
		for line := range strings.Lines(text) {
			words := strings.Fields(line)
			n := numbers(line)
			g := grant{Campaign: id, User: user, Packet: n[0], Amount: n[1], Seq: n[2]}
			if len(words) > 4 {
				g.Request = words[4]
			}
			h.receipts = append(h.receipts, g)
		}
	}
	return nil
}

// numbers returns the first three words as numbers, 0 for what is none.
func numbers(text string) (n [3]int64) {
	for i, word := range strings.Fields(text)[:min(3, len(strings.Fields(text)))] {
		n[i], _ = strconv.ParseInt(word, 10, 64)
	}
	return n
}

// lastSeqs returns the last seq of each shard, by the name of its hash.
func (j *Judge) lastSeqs(ctx context.Context) (map[string]int64, error) {
	keys, err := j.rdb.Keys(ctx, "hb:{*}:meta").Result()
	if err != nil {
		return nil, fmt.Errorf("read the shards: %w", err)
	}
	seqs := map[string]int64{}
	for _, key := range keys {
		seq, err := j.rdb.HGet(ctx, key, "seq").Int64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("read %s: %w", key, err)
		}
		seqs[key] = seq
	}
	return seqs, nil
}
