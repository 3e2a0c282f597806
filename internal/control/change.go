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

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/access"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/web"
)

const keyHeader = "Idempotency-Key"

// maxBody bounds a body; a specification with all its tiers has less.
const maxBody = 256 << 10

func idempotencyKey() *huma.Param {
	return &huma.Param{
		Name: keyHeader, In: "header", Required: true,
		Description: "Drawn for each change; with the same key the same request has its first answer for 24 hours.",
		Schema:      &huma.Schema{Type: huma.TypeString, Pattern: "^[!-~]{1,255}$"},
	}
}

// kept is an answer as it stands beside its Idempotency-Key.
type kept struct {
	Status int             `json:"status"`
	Answer json.RawMessage `json:"answer"`
}

// change answers an operation that changes something: once for each Idempotency-Key.
func (c *call) change(w http.ResponseWriter, o *operation) error {
	if c.r.URL.RawQuery != "" {
		return web.Refuse("invalid_parameter", "what changes something takes no query: it stands in the body")
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

	answer, err := c.once(c.r.Context(), o, req)
	if err != nil {
		return c.denied(o, c.campaign, err)
	}
	if o.after != nil {
		final, err := c.run(c.r.Context(), o.needs, func(ctx context.Context, c *call) (any, error) {
			return o.after(ctx, c, answer.Answer)
		})
		if err != nil {
			return err
		}
		if _, goesOn := final.(later); goesOn {
			answer.Status = http.StatusAccepted
		}
	}
	web.WriteJSON(w, answer.Status, answer.Answer)
	return nil
}

// readBody reads the body as one object, or leaves it to the operation.
func (c *call) readBody(w http.ResponseWriter, o *operation) (err error) {
	body := web.Body{Bytes: maxBody, Incomplete: "nothing was changed; send it again"}
	if c.body, err = web.ReadBody(w, c.r, body); err != nil {
		return err
	}
	if o.raw && len(bytes.TrimSpace(c.body)) > 0 {
		if !json.Valid(c.body) { // campaign.Read takes YAML too
			err = web.Refuse("invalid_json", "the body is one JSON object")
		}
		return err
	}
	fields, err := web.ParseObject(c.body, body)
	c.form = &form{o: fields}
	return err
}

// ledgerWait is how long a change that needs no ledger waits for it.
const ledgerWait = 2 * time.Second

// once does the operation, or gives the answer that it had.
func (c *call) once(ctx context.Context, o *operation, req access.Request) (answer kept, err error) {
	asking := ctx
	if o.alone {
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, ledgerWait)
		defer cancel()
	}
	text, _, err := c.Control.app.Once(asking, req, func(within context.Context) ([]byte, error) {
		return c.effect(ctx, within, o)
	})
	if o.alone && hongbao.IsOutage(err) && !errors.Is(err, access.ErrUnderWay) {
		text, err = c.without(ctx, o)
	}
	if err == nil {
		err = json.Unmarshal(text, &answer)
	}
	return answer, problemOf(err)
}

// effect does the operation within the transaction that has its answer, or before it, and records it there.
func (c *call) effect(ctx, within context.Context, o *operation) ([]byte, error) {
	if o.together {
		ctx = within
	}
	answer, err := c.run(ctx, o.needs, o.do)
	if err != nil {
		return nil, err
	}
	return keep(answer)
}

// without does the operation while the ledger is away.
func (c *call) without(ctx context.Context, o *operation) ([]byte, error) {
	answer, err := c.run(ctx, app.Needs{}, o.do)
	if err != nil {
		return nil, err
	}
	return keep(answer)
}

func keep(answer any) ([]byte, error) {
	status := http.StatusOK
	if l, goesOn := answer.(later); goesOn {
		status, answer = http.StatusAccepted, l.answer
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, fmt.Errorf("write the answer: %w", err)
	}
	return json.Marshal(kept{status, text})
}
