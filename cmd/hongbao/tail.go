package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/publisher"
)

func tailCmd() *cobra.Command {
	follow := false
	var campaigns []string
	cmd := &cobra.Command{
		Use: "tail", Short: "Print the topic's grants as JSON, one a line",
		Example: "  hongbao tail --campaign spring-rain\n  hongbao tail --follow", Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := checkCampaigns(campaigns...); err != nil {
				return err
			}
			d, err := open(cmd)
			if err != nil {
				return err
			}
			defer d.close(&err)
			if err := d.openRedis(cmd.Context()); err != nil {
				return err
			}
			p, err := d.publisher(cmd.Context())
			if err != nil {
				return err
			}
			return tail(cmd, p, campaigns, follow)
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
	Time      time.Time      `json:"time"`
	RequestID string         `json:"request_id,omitempty"`
}

func tail(cmd *cobra.Command, p *publisher.Publisher, campaigns []string, follow bool) error {
	ctx := cmd.Context()
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
	var from []int64
	var err error
	for err == nil {
		var r publisher.ScanReport
		r, err = p.Scan(ctx, from, func(partition int, offset int64, e publisher.Event) error {
			g := &e.Grant
			if len(campaigns) == 0 || slices.Contains(campaigns, g.Campaign) {
				lines <- tailed{partition, offset, g.EventID(), g.Campaign, g.Packet, g.User, g.Amount, g.Time.UTC(), g.RequestID}
			}
			return nil
		})
		if from = r.Next; !follow || !pause(ctx, 200*time.Millisecond) {
			break
		}
	}
	close(lines)
	if follow && ctx.Err() != nil {
		err = nil // stopped, as it was asked to
	}
	return errors.Join(err, wrap("print the topic", <-printed))
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
