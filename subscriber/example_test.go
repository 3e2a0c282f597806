package subscriber_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	_ "modernc.org/sqlite"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/subscriber"
	"github.com/hongbao-project/hongbao/topic"
)

// A shop stores points in its own database. One transaction stores the points of a grant and the position, so a grant
// that is in the topic twice counts once. The grant of a user whom the shop does not know becomes a dead letter, and
// later grants are still handled.
func Example() {
	folder, err := os.MkdirTemp("", "points")
	check(err)
	defer os.RemoveAll(folder)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(folder, "shop.db")+
		"?_pragma=busy_timeout(5000)&_pragma=synchronous(FULL)")
	check(err)
	db.SetMaxOpenConns(1)
	defer db.Close()
	_, err = db.Exec(`CREATE TABLE customer (name TEXT PRIMARY KEY, points INTEGER NOT NULL); INSERT INTO customer VALUES ('ann', 0), ('bob', 0)`)
	check(err)

	sink, err := subscriber.NewSQL(context.Background(), subscriber.SQLConfig{
		DB: db, Dialect: "sqlite", Name: "points", Timeout: 10 * time.Second,
		Effect: func(ctx context.Context, tx *sql.Tx, events []topic.Event) error {
			for _, e := range events {
				res, err := tx.ExecContext(ctx, `UPDATE customer SET points = points + $1 WHERE name = $2`, int64(e.Grant.Amount), e.Grant.User)
				if err != nil {
					return err
				}
				if n, err := res.RowsAffected(); err != nil || n == 0 {
					return hongbao.Errorf(hongbao.ClassPermanent, "no customer %s", e.Grant.User)
				}
			}
			return nil
		},
	})
	check(err)

	addr, closeBroker := broker()
	defer closeBroker()
	publish(addr, 1, "ann", 100)
	publish(addr, 2, "bob", 250)
	publish(addr, 1, "ann", 100)
	publish(addr, 4, "carl", 70)
	publish(addr, 3, "ann", 30)

	cfg := subscriber.DefaultConfig()
	cfg.Brokers, cfg.ClientID, cfg.Topic, cfg.DeadLetters = []string{addr}, "points", "hongbao.grants", "points.dead"
	cfg.Group, cfg.Deployment, cfg.Sink, cfg.Log = "points", "shop", sink, zap.NewNop()
	s, err := subscriber.New(cfg)
	check(err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	tick := time.NewTicker(time.Millisecond)
	for n := s.Stats(); n.Done+n.Refused < 4; n = s.Stats() { // a real service would wait for SIGTERM
		<-tick.C
	}
	stop()
	check(<-ended)

	var ann, bob int64
	check(db.QueryRow(`SELECT (SELECT points FROM customer WHERE name = 'ann'), (SELECT points FROM customer WHERE name = 'bob')`).Scan(&ann, &bob))
	n := s.Stats()
	fmt.Println("ann", ann, "bob", bob)
	fmt.Println("done", n.Done, "repeated", n.Repeated, "dead letters", n.Refused)
	// Output:
	// ann 130 bob 250
	// done 3 repeated 1 dead letters 1
}

func broker() (addr string, done func()) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "hongbao.grants", "points.dead"))
	check(err)
	return c.ListenAddrs()[0], c.Close
}

// publish writes a grant to the topic, like package publish but without its protection against copies.
func publish(addr string, seq int64, user string, amount int64) {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic("hongbao.grants"))
	check(err)
	defer client.Close()
	n, at := strconv.FormatInt(seq, 10), "2026-11-21T08:00:00.123Z"
	r := &kgo.Record{Key: []byte(user), Value: fmt.Appendf(nil,
		`{"campaign":"spring","packet":%d,"user":%q,"amount":%d,"shard":0,"seq":%d,"epoch":1,"time":%q}`, seq, user, amount, seq, at)}
	for _, h := range [][2]string{
		{"ce_specversion", "1.0"}, {"ce_source", "/hongbao/shop"}, {"ce_type", "hongbao.grant.v1"},
		{"content-type", "application/json"},
		{"ce_id", "0-" + n}, {"ce_time", at}, {"shard", "0"}, {"seq", n}, {"epoch", "1"},
	} {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h[0], Value: []byte(h[1])})
	}
	check(client.ProduceSync(context.Background(), r).FirstErr())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
