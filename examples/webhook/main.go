// Command webhook receives the events of a webhook sink, and gives each grant its effect once: webhook ADDRESS FILE.
//
// WEBHOOK_SECRET has the secret. The effect is points in FILE, a SQLite database. One transaction stores the id of the
// event and its points, so a copy has no effect. A test runs this file.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	_ "modernc.org/sqlite"
)

const tables = `
	CREATE TABLE IF NOT EXISTS seen (source TEXT, id TEXT, user_id TEXT, PRIMARY KEY (source, id));
	CREATE TABLE IF NOT EXISTS points (user_id TEXT PRIMARY KEY, n INTEGER)`

func main() {
	r, err := open(context.Background(), os.Getenv("WEBHOOK_SECRET"), os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: os.Args[1], Handler: r, ReadTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

type receiver struct {
	webhook *standardwebhooks.Webhook
	db      *sql.DB
}

func open(ctx context.Context, secret, file string) (*receiver, error) {
	if secret == "" { // every sender knows the empty secret
		return nil, errors.New("WEBHOOK_SECRET is empty")
	}
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", file)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // SQLite has one writer
	_, err = db.ExecContext(ctx, tables)
	return &receiver{webhook, db}, err
}

// event is a CloudEvent. Ignore fields that you do not know: later versions may add some.
type event struct {
	Source, ID, Type string
	Data             struct {
		User   string
		Amount int64
	}
}

var errOtherUser = errors.New("another user has this packet: ask the operator which user the ledger has paid")

// ServeHTTP answers 204 after the effect is stored. 401 stops the sink, 422 makes a dead letter, 408 and 503 make the
// sink try again.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 64<<10))
	if err != nil {
		http.Error(w, "the body did not arrive", http.StatusRequestTimeout)
		return
	}
	if err := r.webhook.Verify(body, req.Header); err != nil { // of the bytes as they came: never parse before
		http.Error(w, err.Error(), http.StatusUnauthorized)
		return
	}
	var e event
	err = json.Unmarshal(body, &e)
	if err == nil && e.Type == "hongbao.grant.v1" { // any other type is new, and not for this program
		err = r.effect(req.Context(), &e)
	}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.As(err, &syntax), errors.As(err, &kind), errors.Is(err, errOtherUser):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	default: // the database: the event comes again
		http.Error(w, "the effect can't be stored now", http.StatusServiceUnavailable)
	}
}

// effect gives the user the points of a grant, unless the event was seen before.
func (r *receiver) effect(ctx context.Context, e *event) error {
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
	var user string
	err = tx.QueryRowContext(ctx, "SELECT user_id FROM seen WHERE source = ? AND id = ?", e.Source, e.ID).Scan(&user)
	switch {
	case err == nil && user == e.Data.User:
		return nil
	case err == nil:
		return fmt.Errorf("event %s: %w", e.ID, errOtherUser)
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	if _, err = tx.ExecContext(ctx, "INSERT INTO seen VALUES (?, ?, ?)", e.Source, e.ID, e.Data.User); err != nil {
		return err
	}
	if _, err = tx.ExecContext(ctx, "INSERT INTO points VALUES (?, ?) ON CONFLICT (user_id) DO UPDATE SET n = n + excluded.n",
		e.Data.User, e.Data.Amount); err != nil {
		return err
	}
	return tx.Commit()
}
