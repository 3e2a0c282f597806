package frontend

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/dedup"
	"github.com/hongbao-project/hongbao/topic"
)

// Post sends a message to a front end at url. The class of its error says what is known: Transient if nothing was sent,
// Permanent if it was refused, else Unknown. The client must have a timeout.
func Post(ctx context.Context, client *http.Client, url, id string, message []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(message)))
	if err != nil {
		return hongbao.Errorf(hongbao.ClassPermanent, "notify the front end at %s: %w", url, err)
	}
	req.GetBody = nil // so that net/http never sends it again
	req.Header.Set("Event-Id", id)
	res, err := client.Do(req)
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return hongbao.Outagef(hongbao.ClassTransient, "reach the front end: %w", err)
	case err != nil:
		return fmt.Errorf("notify the front end: %w", err)
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode < 300:
		return nil
	case res.StatusCode < 500:
		return hongbao.Errorf(hongbao.ClassPermanent, "the front end at %s refuses message %s: %s", url, id, res.Status)
	}
	return fmt.Errorf("the front end at %s answers %s to message %s", url, res.Status, id)
}

// NotifyOnce returns the effect of a subscriber. The effect sends a grant to the front end, unless another subscriber
// has sent it. The result depends on what push-once knows about the message:
//
//   - Done: this or another subscriber has sent the message.
//   - InProgress: another subscriber is sending the message. Try again later, without an attempt, so the error is an
//     outage: a subscriber would count an attempt for hongbao.Waitingf. If the other subscriber dies, the message is in doubt.
//   - InDoubt: a subscriber began to send the message and never reported the result. For this front end, showing it
//     twice is worse than leaving it out. So the grant becomes a dead letter, and a person decides.
//   - Free: the message was certainly not sent. Try again.
func NotifyOnce(once *dedup.Once, post func(ctx context.Context, id string, message []byte) error) func(context.Context,
	topic.Event) error {
	return func(ctx context.Context, e topic.Event) error {
		g := &e.Grant
		message, err := json.Marshal(map[string]any{"user": g.User, "amount": g.Amount, "campaign": g.Campaign})
		if err != nil {
			return hongbao.Errorf(hongbao.ClassPermanent, "encode event %s: %w", g.EventID(), err)
		}
		id := fmt.Sprintf("%s/%s/%d", e.Source, g.Campaign, g.Packet)
		state, err := once.Push(ctx, id, rand.Text(), func(ctx context.Context) error { return post(ctx, id, message) })
		switch {
		case err != nil:
			return err
		case state == dedup.InProgress:
			return hongbao.Outagef(hongbao.ClassTransient, "another subscriber is sending %s", id)
		case state == dedup.InDoubt:
			return hongbao.Errorf(hongbao.ClassPermanent,
				"%s may have been sent: the subscriber that began to send it never reported the result", id)
		}
		return nil
	}
}
