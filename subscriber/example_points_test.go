package subscriber_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"go.uber.org/zap"
	_ "modernc.org/sqlite"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit/example"
	"github.com/hongbao-project/hongbao/subscriber"
	"github.com/hongbao-project/hongbao/topic"
)

// A shop stores points in its own database. The topic has ann's grant twice, as after a replay. One transaction stores
// the points and which grants the shop has seen, so ann gets her points once.
func Example_points() {
	grants := example.NewTopic()
	defer grants.Close()
	ann := hongbao.Grant{Seq: 1, Campaign: "spring", Packet: 1, User: "ann", Amount: 100}
	bob := hongbao.Grant{Seq: 2, Campaign: "spring", Packet: 2, User: "bob", Amount: 250}
	grants.Publish(ann, ann, bob)

	db := shop()
	defer db.Close()
	sink, err := subscriber.NewSQL(context.Background(), subscriber.SQLConfig{
		DB: db, Dialect: "sqlite", Name: "points", Timeout: 10 * time.Second,
		Effect: func(ctx context.Context, tx *sql.Tx, events []topic.Event) error {
			for _, e := range events {
				if _, err := tx.ExecContext(ctx, `UPDATE customer SET points = points + $1 WHERE name = $2`,
					int64(e.Grant.Amount), e.Grant.User); err != nil {
					return err
				}
			}
			return nil
		},
	})
	check(err)

	cfg := subscriber.DefaultConfig()
	cfg.Brokers, cfg.ClientID, cfg.Group, cfg.Deployment = grants.Brokers, "points", "points", grants.Deployment
	cfg.Topic, cfg.DeadLetters, cfg.Sink, cfg.Log = grants.Name, grants.DeadLetters, sink, zap.NewNop()
	s, err := subscriber.New(cfg)
	check(err)
	ctx, stop := context.WithTimeout(context.Background(), time.Minute) // a real program runs until SIGTERM
	ended, tick := make(chan error, 1), time.NewTicker(time.Millisecond)
	go func() { ended <- s.Run(ctx) }()
	for n := s.Stats(); n.Done+n.Repeated < 3 && ctx.Err() == nil; n = s.Stats() {
		<-tick.C
	}
	stop()
	check(<-ended)

	for _, user := range []string{"ann", "bob"} {
		var points int64
		check(db.QueryRow(`SELECT points FROM customer WHERE name = $1`, user).Scan(&points))
		fmt.Println(user, "has", points, "points")
	}
	fmt.Println("dropped repeats:", s.Stats().Repeated)
	// Output:
	// ann has 100 points
	// bob has 250 points
	// dropped repeats: 1
}

// shop returns a database with two customers.
func shop() *sql.DB {
	db, err := sql.Open("sqlite", ":memory:")
	check(err)
	db.SetMaxOpenConns(1)
	_, err = db.Exec(`CREATE TABLE customer (name TEXT, points INTEGER);
		INSERT INTO customer VALUES ('ann', 0), ('bob', 0)`)
	check(err)
	return db
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
