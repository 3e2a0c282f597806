package dev

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/dev/local"
)

const (
	// crowdID names the campaigns of the crowd, with a number.
	crowdID = "crowd"
	// crowdBatch bounds the grabs of a request; maxCrowd bounds the grabs in a second.
	crowdBatch = 128
	maxCrowd   = 10_000
	// crowdPatience bounds a request. A request without an answer is sent again.
	crowdPatience = 10 * time.Second
)

// crowd simulates users who grab by the API with a gateway's key, size grabs a second. Every fifth grab is a second
// one of the user before. After a campaign of the crowd is sold out or over, the next one follows.
type crowd struct {
	size     int
	api, key string
	tell     *local.Teller
	client   *http.Client
	// open opens a campaign, unless there was one before.
	open func(ctx context.Context, id string) (spec hongbao.Campaign, before bool, err error)

	campaign         string
	campaigns, users int64
	told             string // the kind of the last reported trouble; empty: there is none
}

// trouble is why the crowd can't continue. Two in a row of one kind are reported once.
type trouble struct {
	kind string
	// final reports whether no other attempt can help.
	final bool
	error
}

func (t *trouble) Unwrap() error { return t.error }

// run lets the users grab until ctx ends, or no attempt can help.
func (c *crowd) run(ctx context.Context) {
	over := true
	for {
		if over && !c.lasting(ctx, func() error { return c.next(ctx) }) {
			return
		}
		n := min(c.size, crowdBatch)
		body, err := json.Marshal(c.batch(n))
		if err != nil || !c.lasting(ctx, func() (err error) { over, err = c.grab(ctx, body); return err }) {
			return
		}
		if !retry.Pause(ctx, time.Second*time.Duration(n)/time.Duration(c.size)) {
			return
		}
	}
}

// lasting calls try until it succeeds, and reports an error only when its kind changes. It returns false if it
// gave up.
func (c *crowd) lasting(ctx context.Context, try func() error) bool {
	for {
		err := try()
		if err == nil {
			if c.told != "" {
				c.tell.Say("The crowd gets on again.")
			}
			c.told = ""
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		t := &trouble{kind: "campaign", final: !retry.MayHelp(err), error: err}
		errors.As(err, &t)
		if t.final {
			c.tell.Say("The crowd gives up: %v", err)
			return false
		}
		if t.kind != c.told {
			c.tell.Say("The crowd can't go on, and tries again every second: %v", err)
		}
		c.told = t.kind
		if !retry.Pause(ctx, time.Second) {
			return false
		}
	}
}

// next opens the next campaign of the crowd.
func (c *crowd) next(ctx context.Context) error {
	for {
		c.campaigns++
		c.campaign = fmt.Sprintf("%s-%d", crowdID, c.campaigns)
		spec, before, err := c.open(ctx, c.campaign)
		if err != nil {
			return err
		}
		if before {
			continue // an earlier start made it
		}
		c.tell.Say("%d users a second grab in campaign %s: %d packets, %s", c.size, c.campaign, spec.Packets,
			money.Text(spec.Total, spec.Currency))
		return nil
	}
}

// batch is the body of a request.
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
		Problem *problem `json:"problem"`
	} `json:"results"`
}

// problem is the API's problem.
type problem struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// batch makes the grabs of the next n users.
func (c *crowd) batch(n int) batch {
	b := batch{Grabs: make([]grab, n)}
	for i := range b.Grabs {
		b.Grabs[i].RequestID = fmt.Sprintf("c%d", c.users)
		if c.users%5 != 1 { // else the user before grabs again
			b.Grabs[i].User = fmt.Sprintf("guest-%d", c.users)
		} else {
			b.Grabs[i].User = fmt.Sprintf("guest-%d", c.users-1)
		}
		c.users++
	}
	return b
}

// grab sends a batch once, and reports whether the campaign is over.
func (c *crowd) grab(ctx context.Context, body []byte) (over bool, err error) {
	answer, err := c.send(ctx, body)
	if err != nil {
		return false, err
	}
	for _, r := range answer.Results {
		switch {
		case r.Problem != nil && r.Problem.Code == string(hongbao.OutcomeUnknownCampaign):
			over = true
		case r.Problem != nil:
			return false, &trouble{kind: r.Problem.Code, error: fmt.Errorf("a grab is not decided: %s: %s", r.Problem.Code,
				r.Problem.Detail)}
		case r.Answer == nil:
			return false, &trouble{kind: "no answer", error: errors.New("a grab of a batch has no answer")}
		case r.Answer.Outcome == hongbao.OutcomePaused:
			return false, &trouble{kind: "paused", error: fmt.Errorf("campaign %s is paused", c.campaign)}
		case r.Answer.Outcome == hongbao.OutcomeSoldOut, r.Answer.Outcome == hongbao.OutcomeEnded:
			over = true
		}
	}
	return over, nil
}

// send makes a request.
func (c *crowd) send(ctx context.Context, body []byte) (out batchAnswer, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.api+"/v1/campaigns/"+c.campaign+"/grabs:batch",
		bytes.NewReader(body))
	if err != nil {
		return out, &trouble{kind: "request", final: true, error: err}
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("Content-Type", "application/json")
	res, err := c.client.Do(r)
	if err != nil {
		var unknown *tls.CertificateVerificationError
		return out, &trouble{kind: "connection", final: errors.As(err, &unknown), error: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode == http.StatusOK {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return out, &trouble{kind: "connection", error: err}
	}
	if res.StatusCode != http.StatusOK {
		return out, &trouble{kind: res.Status, final: res.StatusCode == http.StatusUnauthorized,
			error: fmt.Errorf("the API answers %s: %.200s", res.Status, text)}
	}
	return out, nil
}

// crowdClient returns a client that trusts the server's own certificate, if there is one, whatever the name in it.
func crowdClient(certFile string) (*http.Client, error) {
	transport := &http.Transport{}
	if certFile != "" {
		pair, err := os.ReadFile(certFile)
		if err != nil {
			return nil, fmt.Errorf("read the server's certificate for the crowd: %w", err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pair)
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		if block, _ := pem.Decode(pair); block != nil {
			own, err := x509.ParseCertificate(block.Bytes)
			switch {
			case err == nil && len(own.DNSNames) > 0:
				transport.TLSClientConfig.ServerName = strings.Replace(own.DNSNames[0], "*", "dev", 1)
			case err == nil && len(own.IPAddresses) > 0:
				transport.TLSClientConfig.ServerName = own.IPAddresses[0].String()
			}
		}
	}
	return &http.Client{Timeout: crowdPatience, Transport: transport}, nil
}
