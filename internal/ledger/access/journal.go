package access

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/optional"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// maxDetails bounds the details of an entry of the journal.
const maxDetails = 16 << 10

// Record writes entries into the journal; access.Entry.Fit truncates them. It never changes an existing entry. Within
// Together the entries are part of the transaction.
func (a Access) Record(ctx context.Context, entries ...access.Entry) error {
	stmts := make([]db.Stmt, len(entries))
	for i := range entries {
		e := entries[i]
		e.Fit()
		details, err := json.Marshal(e.Details)
		if err != nil {
			return hongbao.Errorf(hongbao.ClassPermanent, "write %s into the journal: %w", e.Action, err)
		}
		if e.Details == nil {
			details = []byte("{}")
		}
		if len(details) > maxDetails {
			details = []byte(`{"left_out":"too long"}`)
		}
		stmts[i] = db.Stmt{SQL: a.tables.Dialect.InsertJournal, Args: []any{e.ID, e.Time.UnixMilli(), e.Who, string(e.Action),
			e.Campaign, e.Sink, string(e.Outcome), e.RequestID, string(details)}}
	}
	err := a.tables.Write(ctx, func(context.Context, db.Txn) ([]db.Stmt, error) { return stmts, nil })
	if err != nil {
		return fmt.Errorf("write into the journal: %w", err)
	}
	return nil
}

// Journal returns a page of the journal, the newest entries first.
func (a Access) Journal(ctx context.Context, q access.JournalQuery) (p access.JournalPage, err error) {
	where, args, err := journalWhere(&q)
	if err != nil {
		return p, err
	}
	// The query reads one entry more than the limit, to learn whether another page follows.
	p.Entries, err = tables.Ask("read the journal",
		`SELECT id, at, who, action, campaign, sink, outcome, request_id, details FROM journal WHERE `+where+
			` ORDER BY at DESC, id DESC LIMIT $1`, args, scanEntry).All(ctx, a.tables)
	if err != nil {
		return access.JournalPage{}, err
	}
	if len(p.Entries) > q.Limit {
		p.Entries = p.Entries[:q.Limit]
		last := &p.Entries[q.Limit-1]
		p.Next = optional.Text(fmt.Sprintf("%d-%s", last.Time.UnixMilli(), last.ID))
	}
	return p, nil
}

// journalWhere returns the condition and the arguments of a query; the limit is the first argument.
func journalWhere(q *access.JournalQuery) (string, []any, error) {
	if q.Limit < 1 || q.Limit > access.MaxEntries {
		return "", nil, hongbao.Errorf(hongbao.ClassPermanent, "read the journal: want 1 to %d entries, not %d",
			access.MaxEntries, q.Limit)
	}
	args, conds := []any{int64(q.Limit) + 1, tables.Milli(q.Since)}, []string{"at >= $2"}
	add := func(cond string, values ...any) {
		for _, v := range values {
			args = append(args, v)
			cond = strings.Replace(cond, "?", "$"+strconv.Itoa(len(args)), 1)
		}
		conds = append(conds, cond)
	}
	if q.Campaign != "" {
		add("campaign = ?", q.Campaign)
	}
	if q.Who != "" {
		add("who = ?", q.Who)
	}
	if q.After != "" {
		ms, id, ok := strings.Cut(q.After, "-")
		at, err := strconv.ParseInt(ms, 10, 64)
		if !ok || err != nil || id == "" {
			return "", nil, hongbao.Errorf(hongbao.ClassPermanent, "read the journal: %.60q is not the start of a page; use "+
				"the field next of the previous page", q.After)
		}
		add("(at < ? OR at = ? AND id < ?)", at, at, id)
	}
	return strings.Join(conds, " AND "), args, nil
}

func scanEntry(s db.Scan) (e access.Entry, err error) {
	var at int64
	var action, outcome, details string
	if err = s(&e.ID, &at, &e.Who, &action, &e.Campaign, &e.Sink, &outcome, &e.RequestID, &details); err != nil {
		return e, err
	}
	e.Time, e.Action, e.Outcome = time.UnixMilli(at).UTC(), access.Action(action), access.Outcome(outcome)
	if err = json.Unmarshal([]byte(details), &e.Details); err != nil {
		return e, hongbao.Errorf(hongbao.ClassBroken, "entry %s of the journal has details that are not JSON: %w", e.ID, err)
	}
	if len(e.Details) == 0 {
		e.Details = nil
	}
	return e, nil
}
