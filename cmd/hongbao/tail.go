package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/publisher"
)

// maxTail bounds `hongbao tail -n`: that many lines of each partition are kept in memory.
const maxTail = 100_000

func tailCmd() *cobra.Command {
	var t tailing
	since := ""
	cmd := &cobra.Command{
		Use: "tail", Short: "Print the topic's grants as JSON, one a line",
		Long: "Prints the grants that stand in the topic, one a line. It reads the topic only and asks no other server. Each partition comes in the\n" +
			"order of its offsets; with -n all partitions come in the order of the grants' times.",
		Example: "  hongbao tail --campaign spring-rain\n  hongbao tail --since 10m -n 20\n  hongbao tail --since 2026-02-17T20:00:00Z\n" +
			"  hongbao tail -n 5 --follow",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := checkCampaigns(t.campaigns...); err != nil {
				return err
			}
			if t.last < -1 || t.last > maxTail {
				return usage("-n %d: want 0 to %d", t.last, maxTail)
			}
			if t.since, err = parseSince(since); err != nil {
				return err
			}
			return with(cmd, needs{}, func(d *deps) error {
				d.redis = d.cfg.RedisClient() // the publisher wants one; reading asks it nothing
				d.atEnd(d.redis.Close)
				p, err := d.publisher(cmd.Context())
				if err != nil {
					return err
				}
				t.deps, t.topic, t.printed = d, p, make([]int64, d.cfg.Kafka.Partitions)
				return t.run(cmd)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&t.follow, "follow", "f", false, "go on with what comes, until SIGINT")
	flags.StringSliceVar(&t.campaigns, "campaign", nil, "print these campaigns only")
	flags.StringVar(&since, "since", "", "print what was sent to the topic since then only: a time as 2026-02-17T20:00:00Z, or how long ago as 10m")
	flags.IntVarP(&t.last, "last", "n", -1, "print the last so many grants only; -1 for all")
	return cmd
}

// parseSince reads a time, or how long ago it was; the zero time if nothing was given.
func parseSince(text string) (time.Time, error) {
	ago, err := time.ParseDuration(text)
	if err != nil {
		return parseTime("--since", text)
	}
	if ago <= 0 {
		return time.Time{}, usage("--since %s: how long ago must be above 0", text)
	}
	return time.Now().Add(-ago), nil
}

// tailed is a line of `hongbao tail`.
type tailed struct {
	Partition int            `json:"partition"`
	Offset    int64          `json:"offset"`
	Event     string         `json:"event"`
	Campaign  string         `json:"campaign"`
	Packet    int64          `json:"packet"`
	User      string         `json:"user"`
	Amount    hongbao.Amount `json:"amount"`
	Currency  string         `json:"currency,omitempty"`
	Time      time.Time      `json:"time"`
	RequestID string         `json:"request_id,omitempty"`
	Code      string         `json:"code,omitempty"`
}

// tailing is one run of `hongbao tail`.
type tailing struct {
	*deps
	topic     *publisher.Publisher
	campaigns []string
	follow    bool
	since     time.Time // zero for the beginning of the log
	last      int       // grants to begin with; -1 for all
	printed   []int64   // offset after the last one printed, per partition
}

func (t *tailing) run(cmd *cobra.Command) error {
	lines := make(chan tailed)
	printed := make(chan error, 1)
	go func() {
		e := json.NewEncoder(cmd.OutOrStdout())
		var err error
		for l := range lines {
			if err == nil {
				err = e.Encode(l)
			}
		}
		printed <- err
	}()
	err := t.scan(cmd.Context(), lines)
	close(lines)
	return errors.Join(err, wrap("print the topic", <-printed))
}

// scan gives the topic's grants to lines; with follow until ctx ends, also while the brokers are out of reach.
func (t *tailing) scan(ctx context.Context, lines chan<- tailed) error {
	var from []int64
	for {
		next, err := t.turn(ctx, from, lines)
		switch {
		case !t.follow:
			return err
		case ctx.Err() != nil:
			return nil // stopped, as it was asked to
		case err == nil:
			from = next
		case hongbao.IsOutage(err):
			t.log.Warn("the topic is out of reach, tail waits", zap.Error(err))
		default:
			return err
		}
		if !pause(ctx, 200*time.Millisecond) {
			return nil
		}
	}
}

// turn gives what the topic has from the offsets on to lines, and tells where the next turn begins. from is nil for the first turn.
func (t *tailing) turn(ctx context.Context, from []int64, lines chan<- tailed) ([]int64, error) {
	if from == nil && t.last >= 0 {
		return t.lastOnes(ctx, lines)
	}
	if from == nil && !t.since.IsZero() {
		var err error
		if from, _, err = t.topic.Offsets(ctx, t.since); err != nil {
			return nil, err
		}
	}
	return t.read(ctx, from, func(l *tailed) {
		if l.Offset >= t.printed[l.Partition] { // else it came before the error that ended the last turn
			t.printed[l.Partition] = l.Offset + 1
			lines <- *l
		}
	})
}

// read gives the grants of the campaigns that are wanted to fn, by one goroutine a partition.
func (t *tailing) read(ctx context.Context, from []int64, fn func(l *tailed)) ([]int64, error) {
	r, err := t.topic.Scan(ctx, from, func(partition int, offset int64, e publisher.Event) error {
		if g := &e.Grant; len(t.campaigns) == 0 || slices.Contains(t.campaigns, g.Campaign) {
			fn(&tailed{partition, offset, g.EventID(), g.Campaign, g.Packet, g.User, g.Amount, g.Currency, g.Time.UTC(), g.RequestID, g.Code})
		}
		return nil
	})
	return r.Next, err
}

// lastOnes gives the last grants of all partitions to lines, in the order of their times. A log is read forward only, so it goes back
// further and further in each partition until that one has enough of them, or is at its beginning.
func (t *tailing) lastOnes(ctx context.Context, lines chan<- tailed) ([]int64, error) {
	start, next, err := t.topic.Offsets(ctx, t.since)
	if err != nil {
		return nil, err
	}
	end, at, kept := next, slices.Clone(next), make([][]tailed, len(next))
	for back := int64(t.last); ; back *= 4 {
		from, short := slices.Clone(next), false
		for i := range at {
			if len(kept[i]) < t.last && at[i] > start[i] {
				at[i] = max(start[i], end[i]-back)
				from[i], kept[i], short = at[i], nil, true
			}
		}
		if !short {
			break
		}
		if next, err = t.read(ctx, from, func(l *tailed) {
			k := append(kept[l.Partition], *l)
			kept[l.Partition] = k[max(len(k)-t.last, 0):]
		}); err != nil {
			return nil, err
		}
	}
	all := slices.Concat(kept...)
	slices.SortStableFunc(all, func(a, b tailed) int { return a.Time.Compare(b.Time) })
	for _, l := range all[max(len(all)-t.last, 0):] {
		lines <- l
	}
	return next, nil
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
