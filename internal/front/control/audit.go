package control

import (
	"context"
	"errors"
	"math"
	"net/http"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/books"
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

// auditAnswer is the report of an audit, or says which audit runs.
type auditAnswer struct {
	Running *model.RunningAudit `json:"running,omitempty" doc:"With status 202: the audit that this request has started."`
	Report  *model.AuditReport  `json:"report,omitempty" doc:"With status 200: what the audit found."`
}

func auditOperations() []operation {
	return []operation{
		{
			method: http.MethodPost, path: "/v1/audit", id: "audit", summary: "Compare Redis, the ledger and the topic",
			description: "The servers of a deployment run one audit at a time; during it, another request gets the code " +
				"`conflict`, with the time when the audit started and who started it. If the answer is 202, send the same request " +
				"again, with the same key, to wait for the report. The audit continues in the server that began it. If that " +
				"server stops, the audit stops, and the same request starts another one. Differences do not change the status: " +
				"see the field `verdict`.",
			action: access.RunAudit, body: auditBody{}, answer: auditAnswer{}, accepted: auditAnswer{},
			codes: []string{"conflict"}, do: runAudit,
		},
		{
			method: http.MethodGet, path: "/v1/audit", id: "last-audit", summary: "Show the verdict of the last whole audit",
			description: "Each `hongbao audit` of all campaigns stores its verdict, and this answer has the newest one.",
			action:      access.ReadSinks, answer: books.LastAudit{},
			do: plain(func(ctx context.Context, c *call) (any, error) { return c.ops().LastAudit(ctx) }),
		},
		{
			method: http.MethodPost, path: "/v1/audit/acknowledgements", id: "acknowledge-difference",
			summary: "Acknowledge a known difference of the audit",
			description: "Copy the fields from `kind` to `detail` of a difference that `hongbao audit --json` prints. Until " +
				"the time in the field `until`, the audit shows a difference with exactly these fields as acknowledged. " +
				"Verdict, alarms and sealing ignore an acknowledged difference. A second acknowledgement of the same difference " +
				"replaces the first. A difference of the kind `double_credit` can't be acknowledged.",
			action: access.AcknowledgeDifference, body: acknowledgeBody{},
			answer: model.Acknowledgement{}, inTransaction: true, do: acknowledge,
		},
	}
}

func runAudit(ctx context.Context, c *call) (any, error) {
	f := c.fields
	in := ops.Audit{Campaign: f.long("campaign"), Full: f.flag("full"), Seal: f.flag("seal"),
		WaitSeconds: f.number("wait_seconds", 1, 3600), Request: access.Hash(c.req.Caller + " " + c.req.Key)}
	if err := f.done(); err != nil {
		return nil, err
	}
	order := jobs.Audit(c.ops(), in)
	answerOf := func(r *jobs.Report) any { return auditAnswer{Report: r.Audit} }
	order.Keep = func(ctx context.Context, r *jobs.Report) { c.keep(ctx, answerOf(r)) }
	begun := func(j model.Job) any {
		return auditAnswer{Running: &model.RunningAudit{Since: j.Began, By: "key:" + j.By}}
	}
	answer, err := c.long(ctx, begun, order, answerOf)
	var runs *books.AuditRunsError
	if errors.As(err, &runs) && runs.Request == in.Request { // another server runs the audit of this request
		return later{auditAnswer{Running: &runs.RunningAudit}}, nil
	}
	return answer, err
}

func acknowledge(ctx context.Context, c *call) (any, error) {
	f := c.fields
	in := ops.Acknowledge{Kind: f.text("kind"), Where: f.text("where"), Campaign: f.text("campaign"),
		Packet: f.number("packet", 1, math.MaxInt64), Event: f.text("event"), Detail: f.long("detail"),
		Until: f.time("until"), Why: f.text("why")}
	if err := f.done(); err != nil {
		return nil, err
	}
	return c.ops().AcknowledgeDifference(ctx, in)
}
