package dev

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/local"
	"github.com/hongbao-project/hongbao/internal/money"
	"github.com/hongbao-project/hongbao/internal/retry"
)

const (
	// crowdID names the campaigns of the crowd, with a number.
	crowdID = "crowd"
	// crowdBatch bounds the grabs of a request; maxCrowd is what that makes in a second.
	crowdBatch = 128
	maxCrowd   = 10_000
	// crowdPatience bounds a request. One without an answer is sent again.
	crowdPatience = 10 * time.Second
)

// crowd are users who come and grab, as many a second, by the API and with a gateway's key. Every fifth comes twice. A
// campaign of theirs that is sold out is followed by the next one.
type crowd struct {
	size     int
	api, key string
	tell     *local.Teller
	app      *app.App
	client   *http.Client

	campaign         string
	campaigns, users int64
}

// run lets them grab until ctx ends.
func (c *crowd) run(ctx context.Context) error {
	c.client = &http.Client{Timeout: crowdPatience}
	defer c.client.CloseIdleConnections()
	if err := c.next(ctx); err != nil {
		return stopped(ctx, err)
	}
	for {
		n := min(c.size, crowdBatch)
		soldOut, err := c.grab(ctx, n)
		if err == nil && soldOut {
			err = c.next(ctx)
		}
		if err != nil {
			return stopped(ctx, err)
		}
		if !retry.Pause(ctx, time.Second*time.Duration(n)/time.Duration(c.size)) {
			return nil
		}
	}
}

// next opens the next campaign of the crowd.
func (c *crowd) next(ctx context.Context) error {
	for {
		c.campaigns++
		c.campaign = fmt.Sprintf("%s-%d", crowdID, c.campaigns)
		_, before, err := find(ctx, c.app, c.campaign)
		if err != nil {
			return err
		}
		if before {
			continue // it is of an earlier start
		}
		spec, err := create(ctx, c.app, c.campaign, "A crowd's rain")
		if err != nil {
			return err
		}
		c.tell.Say("%d users a second grab in campaign %s: %d packets, %s", c.size, c.campaign, spec.Packets,
			money.Text(spec.Total, spec.Currency))
		return nil
	}
}

// batch is the body of a request, and of its answer what matters here.
type batch struct {
	Grabs []grab `json:"grabs"`
}

type grab struct {
	User      string `json:"user"`
	RequestID string `json:"request_id"`
}

type batchAnswer struct {
	Results []struct {
		Answer *struct {
			Outcome hongbao.Outcome `json:"outcome"`
		} `json:"answer"`
	} `json:"results"`
}

// grab makes one request for n users, again until it is answered, and tells whether the campaign is sold out.
func (c *crowd) grab(ctx context.Context, n int) (soldOut bool, err error) {
	b := batch{Grabs: make([]grab, n)}
	for i := range b.Grabs {
		b.Grabs[i].RequestID = fmt.Sprintf("c%d", c.users)
		if c.users%5 != 1 { // else the one before comes again
			b.Grabs[i].User = fmt.Sprintf("guest-%d", c.users)
		} else {
			b.Grabs[i].User = fmt.Sprintf("guest-%d", c.users-1)
		}
		c.users++
	}
	body, err := json.Marshal(b)
	if err != nil {
		return false, fmt.Errorf("write a request of the crowd: %w", err)
	}
	for {
		answer, err := c.send(ctx, body)
		if err == nil {
			for _, r := range answer.Results {
				soldOut = soldOut || r.Answer != nil && r.Answer.Outcome == hongbao.OutcomeSoldOut
			}
			return soldOut, nil
		}
		if !retry.Pause(ctx, time.Second) {
			return false, errors.Join(err, ctx.Err())
		}
	}
}

// send makes a request once.
func (c *crowd) send(ctx context.Context, body []byte) (out batchAnswer, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.api+"/v1/campaigns/"+c.campaign+"/grabs:batch",
		bytes.NewReader(body))
	if err != nil {
		return out, fmt.Errorf("make a request of the crowd: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("Content-Type", "application/json")
	res, err := c.client.Do(r)
	if err != nil {
		return out, fmt.Errorf("the crowd grabs: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %.200s", res.StatusCode, text)
	}
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	for i := range out.Results {
		if out.Results[i].Answer == nil {
			err = errors.Join(err, errors.New("not every grab is decided yet"))
			break
		}
	}
	if err != nil {
		return out, fmt.Errorf("the crowd grabs: %w", err)
	}
	return out, nil
}
