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

func tailCmd() *cobra.Command {
	follow := false
	var campaigns []string
	cmd := &cobra.Command{
		Use: "tail", Short: "Print the topic's grants as JSON, one a line",
		Example: "  hongbao tail --campaign spring-rain\n  hongbao tail --follow", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkCampaigns(campaigns...); err != nil {
				return err
			}
			return with(cmd, needs{redis: true}, func(d *deps) error {
				p, err := d.publisher(cmd.Context())
				if err != nil {
					return err
				}
				t := tailing{deps: d, topic: p, campaigns: campaigns, follow: follow, printed: make([]int64, d.cfg.Kafka.Partitions)}
				return t.run(cmd)
			})
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "go on with what comes, until SIGINT")
	cmd.Flags().StringSliceVar(&campaigns, "campaign", nil, "print these campaigns only")
	return cmd
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
	printed   []int64 // offset after the last one printed, per partition
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
		r, err := t.topic.Scan(ctx, from, func(partition int, offset int64, e publisher.Event) error {
			g := &e.Grant
			if offset < t.printed[partition] {
				return nil // before the error that ended the last scan
			}
			t.printed[partition] = offset + 1
			if len(t.campaigns) == 0 || slices.Contains(t.campaigns, g.Campaign) {
				lines <- tailed{partition, offset, g.EventID(), g.Campaign, g.Packet, g.User, g.Amount, g.Currency, g.Time.UTC(), g.RequestID, g.Code}
			}
			return nil
		})
		switch {
		case !t.follow:
			return err
		case ctx.Err() != nil:
			return nil // stopped, as it was asked to
		case err == nil:
			from = r.Next
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
