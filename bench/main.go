package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// resultsFile has the last results of every row. It is committed, because the tables are generated from it.
const resultsFile = "bench/results.json"

// rows are all rows, in the order of the table.
var rows = []row{
	grabs(fleet{1, 20}, 1.1, 0),
	grabs(fleet{1, 512}, 2.4, 0.25),
	grabs(fleet{64, 8}, 1.4, 0),
	grabs(fleet{256, 2}, 0.8, 1.3),
	{"grab_shards", placesRow},
	{"sold_out", soldOutRow},
	{"http_grab", httpGrabRow},
	{"serve_256x2", serveFleetRow},
	{"control_load", controlRow},
	{"latency_grab", latencyGrabRow},
	{"latency_ledger", latencyLedgerRow},
	{"latency_topic", latencyTopicRow},
	settleRow("settle_postgres", 200_000, 0.85, postgresDatabase),
	settleRow("settle_mariadb", 100_000, 0.6, mariadbDatabase),
	settleRow("settle_sqlite", 100_000, 0.6, sqliteDatabase),
	{"settle_http", settleHTTPRow},
	{"publish_kafka", publishRow},
	{"publish_webhook", publishWebhookRow},
	{"both_sinks", bothRow},
	{"replay", replayRow},
	{"memory_per_grant", memoryRow},
	{"receipts", receiptsRow},
	{"recover_1e5", recoverRow},
	queueRow(queue{"peer_asynq", "asynq",
		"asynq, which retries and archives each task separately: at least once"}),
	queueRow(queue{"peer_watermill_redis", "watermill-redis", "watermill-redisstream, consumers of one group, each of which " +
		"takes the next message after acknowledging the last: at least once"}),
	{"peer_watermill_kafka", queueKafkaRow},
	{"audit_1e7", auditRow},
}

// slow are rows that take long. They run only if they are named.
var slow = []string{"audit_1e7"}

// rowTime and slowRowTime bound a row, so that a hanging row does not block the others.
const (
	rowTime     = 10 * time.Minute
	slowRowTime = 2 * time.Hour
)

type row struct {
	name string
	run  func(context.Context, options) ([]Result, error)
}

func grabs(f fleet, want, cpu float64) row {
	return row{"grab_" + f.String(), func(ctx context.Context, o options) ([]Result, error) {
		return grabRow(ctx, o, f, want, cpu)
	}}
}

type options struct {
	rounds   int
	scale    float64
	profiles string
	control  string
}

// whole reports whether the results are those of the rows as they are described.
func (o options) whole() bool { return o.scale == 1 && o.control == controlWork }

// n scales a number of operations by the flag -scale.
func (o options) n(full int) int { return max(1000, int(float64(full)*o.scale)) }

func main() {
	names := flag.String("row", "", "measure only these rows, separated by commas")
	only := flag.Bool("pages", false, "measure nothing: write docs/bench.md, and the tables of docs/sizing.md and the READMEs")
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "number of rounds; each runs both sides in turn; at least 3")
	flag.Float64Var(&o.scale, "scale", 1, "factor for the number of operations; only a run with 1 writes its results")
	flag.StringVar(&o.profiles, "profiles", "", "write a CPU profile of each row, ROW.pprof, into this folder")
	flag.StringVar(&o.control, "control", controlWork, "in row control_load, only this work of control, or nothing; such a run writes no results")
	flag.Parse()
	debug.SetGCPercent(400) // for both sides: with a heap this small a process would mostly collect garbage
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if !*only {
		err = run(ctx, o, *names)
	}
	if o.whole() { // also after a failed row, because other rows may have new results
		err = errors.Join(err, writePages("."))
	}
	stop()
	if err = errors.Join(err, testkit.CloseAll()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures the named rows. It writes the results of each row at once, and keeps the results of all other rows. If a
// row fails, run measures the rest and then returns an error.
func run(ctx context.Context, o options, names string) error {
	if o.rounds < 3 || o.scale <= 0 {
		return errors.New("want -rounds of at least 3 and a -scale above 0")
	}
	picked, err := pick(names)
	if err != nil {
		return err
	}
	all, err := readResults(resultsFile)
	if err != nil {
		return err
	}
	var failed []error
	for _, r := range picked {
		fmt.Fprintf(os.Stderr, "%s ...\n", r.name)
		now, err := r.measure(ctx, o)
		if ctx.Err() != nil {
			return errors.Join(append(failed, err, ctx.Err())...)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("row %s: %w", r.name, err))
			fmt.Fprintf(os.Stderr, "%s failed: %v\n", r.name, err)
			continue
		}
		if err := table(os.Stdout, now); err != nil {
			return err
		}
		if all = merge(all, r.name, now); o.whole() {
			if err := writeResults(resultsFile, all); err != nil {
				return err
			}
		}
	}
	return errors.Join(failed...)
}

// measure measures a row, and adds the machine and the duration to its results.
func (r row) measure(ctx context.Context, o options) ([]Result, error) {
	limit := rowTime
	if slices.Contains(slow, r.name) {
		limit = slowRowTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	machine, err := describeMachine(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	var now []Result
	err = profiled(o.profiles, r.name, func() (err error) {
		now, err = r.run(ctx, o)
		return err
	})
	took := time.Since(start).Seconds()
	for i := range now {
		now[i].Row, now[i].Machine, now[i].Seconds = r.name, machine, took
	}
	return now, err
}

func pick(names string) ([]row, error) {
	var out []row
	if names == "" {
		for _, r := range rows {
			if !slices.Contains(slow, r.name) {
				out = append(out, r)
			}
		}
		return out, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		found := false
		for _, r := range rows {
			if r.name == name {
				out, found = append(out, r), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no row %q; there are %s", name, rowNames())
		}
	}
	return out, nil
}

func rowNames() string {
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	return strings.Join(names, ", ")
}
