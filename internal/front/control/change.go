package control

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/answers"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/front/web"
)

const keyHeader = "Idempotency-Key"

// maxBody is the maximum size of a body in bytes. It fits the largest specification with all its tiers.
const maxBody = 256 << 10

func idempotencyKey() *huma.Param {
	return &huma.Param{
		Name: keyHeader, In: "header", Required: true,
		Description: "Use a new random key for each change. For 24 hours, the same request with the same key returns the " +
			"first answer. If the first answer was 202, the repeat continues the work instead.",
		Schema: &huma.Schema{Type: huma.TypeString, Pattern: "^[!-~]{1,255}$"},
	}
}

// kept is an answer in the form in which the ledger stores it with its Idempotency-Key.
type kept struct {
	Status int             `json:"status"`
	Answer json.RawMessage `json:"answer"`
}

// change answers a request that changes something. It does the change only once for each Idempotency-Key.
func (c *call) change(w http.ResponseWriter, o *operation) error {
	if c.r.URL.RawQuery != "" {
		return web.Refuse("invalid_parameter", "a change takes no query parameters: put the fields into the body")
	}
	req := access.Request{Caller: c.who.Key, Key: c.r.Header.Get(keyHeader)}
	if err := req.Check(); err != nil {
		return problemOf(err)
	}
	if err := c.readBody(w, o); err != nil {
		return err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s\n%s", c.r.Method, c.r.URL.EscapedPath(), c.body))
	req.Hash = hex.EncodeToString(sum[:])
	c.req = req

	answer, err := c.once(c.r.Context(), o, req)
	if err != nil {
		return c.denied(err)
	}
	if o.after != nil {
		final, err := o.after(c.r.Context(), c, answer.Answer)
		if err != nil {
			return problemOf(err)
		}
		if _, goesOn := final.(later); goesOn {
			answer.Status = http.StatusAccepted
		}
	}
	web.WriteJSON(w, answer.Status, answer.Answer)
	return nil
}

// readBody reads the body and parses it, unless the operation parses the body itself.
func (c *call) readBody(w http.ResponseWriter, o *operation) (err error) {
	body := web.Body{Bytes: maxBody, Incomplete: "nothing was changed; send it again"}
	if c.body, err = web.ReadBody(w, c.r, body); err != nil {
		return err
	}
	if o.raw && len(bytes.TrimSpace(c.body)) > 0 {
		if !json.Valid(c.body) { // campaign.Read would also accept YAML
			err = web.Refuse("invalid_json", "the body is one JSON object")
		}
		return err
	}
	object, err := web.ParseObject(c.body, body)
	c.fields = &fields{o: object}
	return err
}

// ledgerWait is how long a change that works without the ledger waits for the ledger.
const ledgerWait = 2 * time.Second

// once does the operation, or returns the stored answer of an earlier request with the same Idempotency-Key.
func (c *call) once(ctx context.Context, o *operation, req access.Request) (answer kept, err error) {
	if o.withoutLedger {
		return c.onceWithoutLedger(ctx, o, req)
	}
	text, _, err := c.app.Once(ctx, req, func(within context.Context) ([]byte, error) {
		if o.inTransaction {
			return c.effect(within, o)
		}
		return c.effect(ctx, o)
	})
	return answerOf(text, err)
}

// onceWithoutLedger is once for changes that work without the ledger: if the ledger is down or slow, it does the
// operation anyway.
func (c *call) onceWithoutLedger(ctx context.Context, o *operation, req access.Request) (kept, error) {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(ledgerWait, cancel)
	defer late.Stop()
	did := false
	var text []byte
	var failed error
	kept, _, err := c.app.Once(asking, req, func(context.Context) ([]byte, error) {
		late.Stop() // the operation may use the whole time of the request
		defer late.Reset(ledgerWait)
		did = true
		text, failed = c.effect(ctx, o)
		return text, failed
	})
	switch ledgerDown := hongbao.IsOutage(err) || err != nil && asking.Err() != nil && ctx.Err() == nil; {
	case did: // even if the ledger did not store the answer
		return answerOf(text, failed)
	case ledgerDown && !errors.Is(err, access.ErrUnderWay):
		return answerOf(c.effect(ctx, o))
	}
	return answerOf(kept, err)
}

// unfinished is an answer with status 202. It is not stored with the Idempotency-Key, so that a retry continues the
// work, even after the first server has died.
type unfinished struct{ text []byte }

func (*unfinished) Error() string { return "the work continues" }

// answerOf decodes an answer. An unfinished answer comes in err.
func answerOf(text []byte, err error) (answer kept, _ error) {
	var goesOn *unfinished
	if errors.As(err, &goesOn) {
		text, err = goesOn.text, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	return answer, problemOf(err)
}

// effect does the operation and returns its encoded answer.
func (c *call) effect(ctx context.Context, o *operation) ([]byte, error) {
	answer, err := o.do(ctx, c)
	if err != nil {
		return nil, problemOf(err)
	}
	status := http.StatusOK
	l, goesOn := answer.(later)
	if goesOn {
		status, answer = http.StatusAccepted, l.answer
	}
	text, err := keptText(status, answer)
	if err == nil && goesOn {
		return nil, &unfinished{text}
	}
	return text, err
}

// keptText encodes an answer in the form in which the ledger stores it.
func keptText(status int, answer any) ([]byte, error) {
	text, err := answers.Marshal(answer)
	if err == nil {
		text, err = json.Marshal(kept{status, text})
	}
	if err != nil {
		return nil, fmt.Errorf("write the answer: %w", err)
	}
	return text, nil
}

// keep stores the answer of a job that outlived its request, so that a repeat gets it from any server. While a repeat
// waits for the job, that repeat stores the answer.
func (c *call) keep(ctx context.Context, answer any) {
	text, err := keptText(http.StatusOK, answer)
	if err == nil {
		err = retry.Poll(ctx, keepEvery, func() (bool, error) {
			_, _, err := c.app.Once(ctx, c.req, func(context.Context) ([]byte, error) { return text, nil })
			if errors.Is(err, access.ErrUnderWay) {
				return false, nil
			}
			return true, err
		})
	}
	if err != nil {
		c.log.Warn("the answer of a job was not stored: a repeat of the request does the work again",
			zap.String("action", string(c.action)), zap.Error(err))
	}
}

// keepEvery is how often keep tries to store an answer while a repeat of the request is under way.
const keepEvery = 100 * time.Millisecond
