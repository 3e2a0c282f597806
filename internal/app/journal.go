package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// Recorded runs an action, and writes the result into the journal. The action may add details to the entry. While the
// ledger is down, the entry waits in a list in Redis. So the action works all the same, and the entry survives the end of
// this process. Every change that does not use InLedger uses recorded.
func (a *App) Recorded(ctx context.Context, e access.Entry, do func(context.Context, *access.Entry) error) error {
	err := do(ctx, &e)
	a.WriteEntry(ctx, &e, err)
	return err
}

// InLedger runs an action in a transaction of the ledger, which also writes the journal entry. If the action fails, its
// entry is written after the rollback.
func (a *App) InLedger(ctx context.Context, e access.Entry, do func(context.Context, *access.Entry) error) error {
	err := a.ledger.Tables().Together(ctx, func(ctx context.Context) error {
		if err := do(ctx, &e); err != nil {
			return err
		}
		e.End(nil)
		return a.Access().Record(ctx, e)
	})
	if err != nil {
		a.WriteEntry(ctx, &e, err)
	}
	return err
}

// About returns a new journal entry about a campaign.
func About(ctx context.Context, action access.Action, campaign string) access.Entry {
	e := access.NewEntry(ctx, action)
	e.Campaign = campaign
	return e
}

// journalTime bounds how long a command waits for the write of its journal entry, ledgerTime how long of it for the
// ledger, before the entry goes to Redis.
const journalTime, ledgerTime = 3 * time.Second, time.Second

// WriteEntry writes the result of an action into the journal, unless the request was invalid.
func (a *App) WriteEntry(ctx context.Context, e *access.Entry, err error) {
	var usage UsageError
	var found AttentionError
	if errors.As(err, &usage) || tables.Repeats(ctx, err) {
		return
	}
	if errors.As(err, &found) { // the action is complete: only its result has a problem
		err = nil
	}
	if errors.Is(err, access.ErrMayNotSpend) {
		a.deny(ctx, e, err)
		return
	}
	e.End(err)
	a.record(ctx, e)
}

// record writes an entry to the ledger. While the ledger is down, it leaves the entry in Redis, from where anyone who may
// write to Redis can remove it. A failure is only logged: the action itself has its result already.
func (a *App) record(ctx context.Context, e *access.Entry) {
	// The entry is written even if the caller hangs up or the caller's transaction was rolled back.
	ctx, cancel := context.WithTimeout(tables.WithoutTogether(context.WithoutCancel(ctx)), journalTime)
	defer cancel()
	err := a.recordNow(ctx, e)
	if !a.redisOpen.Load() {
		if err != nil {
			a.log.Warn("an action is not in the journal", zap.Any("entry", e), zap.Error(err))
		}
		return
	}
	if err != nil {
		if left := a.leave(ctx, e); left != nil {
			a.log.Warn("an action is not in the journal", zap.Any("entry", e), zap.Error(errors.Join(err, left)))
		} else {
			a.log.Info("the journal's entry waits in Redis; a server or `hongbao journal` moves it to the ledger", zap.Error(err))
		}
		return
	}
	if a.tended.Load() { // tendJournal moves what waits from before
		return
	}
	if err := a.moveJournal(ctx); err != nil {
		a.log.Info("older entries of the journal wait in Redis", zap.Error(err))
	}
}

// recordNow writes an entry to the ledger, for at most ledgerTime.
func (a *App) recordNow(ctx context.Context, e *access.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, ledgerTime)
	defer cancel()
	return a.Access().Record(ctx, *e)
}

// maxWaiting bounds the number of entries that wait in Redis for the ledger, to about 25 MB, because grabs need the
// memory. If the list is full, new entries are rejected. The oldest entries are kept, because they show how the problem
// began.
const maxWaiting = 50_000

var errFull = fmt.Errorf("%d entries of the journal wait in Redis, which is the maximum: restore the ledger", maxWaiting)

// leave pushes an entry to the list in Redis, unless the list is full.
func (a *App) leave(ctx context.Context, e *access.Entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	n, err := a.store.CountJournal(ctx)
	if err == nil && n >= maxWaiting {
		err = errFull
	}
	if err != nil {
		return err
	}
	return a.store.PushJournal(ctx, string(text))
}

// moveJournal moves the waiting entries from Redis to the ledger. Several processes may run it concurrently, and a
// process may be killed: the ledger ignores an entry that it already has.
func (a *App) moveJournal(ctx context.Context) error {
	const page = 100
	for {
		texts, err := a.store.OldestJournal(ctx, page)
		if err != nil || len(texts) == 0 {
			return wrapJournal(err)
		}
		if err := a.recordTexts(ctx, texts); err != nil {
			return wrapJournal(err)
		}
		if err := a.store.RemoveJournal(ctx, texts); err != nil {
			return wrapJournal(err)
		}
	}
}

// recordTexts writes waiting entries to the ledger. If an entry has an impossible field, or the ledger does not accept
// it, recordTexts writes a note instead, so that the entry does not block those behind it.
func (a *App) recordTexts(ctx context.Context, texts []string) error {
	now := time.Now()
	entries := make([]access.Entry, len(texts))
	for i, text := range texts {
		var err error
		if entries[i], err = access.ReadWaiting(text, now); err != nil {
			entries[i] = a.noteFor(text, now, err)
		}
	}
	err := a.Access().Record(ctx, entries...)
	if err == nil || hongbao.IsOutage(err) || ctx.Err() != nil {
		return err
	}
	for i := range entries { // which one is it?
		err := a.Access().Record(ctx, entries[i])
		if err != nil && !hongbao.IsOutage(err) && ctx.Err() == nil {
			err = a.Access().Record(ctx, a.noteFor(texts[i], now, err))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxUnreadable bounds how much of the entry's text a note contains, in bytes.
const maxUnreadable = 2000

// noteFor returns a note that replaces an unusable entry. The note's id depends only on the text, so a repeat adds no
// second note.
func (a *App) noteFor(text string, now time.Time, why error) access.Entry {
	a.log.Warn("an entry that waited for the journal can't be written; a note replaces it",
		zap.String("text", text[:min(len(text), maxUnreadable)]), zap.Error(why))
	e := access.Entry{
		ID: access.NoteID(text), Time: now, Who: access.UnknownCaller, Action: access.Unreadable,
		Outcome: access.OutcomeUnknown,
		Details: map[string]any{"error": why.Error(), "entry": text[:min(len(text), maxUnreadable)]},
	}
	e.CameThroughRedis(now)
	return e
}

func wrapJournal(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("move the journal from Redis to the ledger: %w", err)
}

// TendJournal moves waiting entries from Redis to the ledger in the background, until stop is called. A server calls it
// before its first request.
func (a *App) TendJournal(ctx context.Context) (stop func()) {
	a.tended.Store(true)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { a.tendJournal(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// journalEvery is how often a server moves the entries that wait in Redis.
const journalEvery = time.Second

// tendJournal moves waiting entries every journalEvery. After the end of ctx it does so one last time.
func (a *App) tendJournal(ctx context.Context) {
	if a.Config.Ledger.DSN == "" {
		return
	}
	var failed error
	for more := true; more; {
		more = retry.Pause(ctx, journalEvery)
		mctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), journalTime)
		err := a.moveJournal(mctx)
		cancel()
		if err != nil && failed == nil {
			a.log.Warn("entries of the journal wait in Redis; moving them is tried again", zap.Error(err))
		}
		failed = err
	}
}

// Journal returns a page of the journal, the newest entries first. For the first page it moves the waiting entries from
// Redis to the ledger first, if Redis can be reached.
func (a *App) Journal(ctx context.Context, q access.JournalQuery) (access.JournalPage, error) {
	if q.After == "" {
		err := a.OpenRedis(ctx)
		if err == nil {
			mctx, cancel := context.WithTimeout(ctx, journalTime)
			defer cancel()
			err = a.moveJournal(mctx)
		}
		if err != nil {
			a.log.Info("entries of the journal that wait in Redis are not in this list", zap.Error(err))
		}
	}
	return a.Access().Journal(ctx, q)
}

// Denied records in the journal that a caller was denied an action. Denials are rate-limited: an entry contains the
// number of denials before it that were not recorded. All callers without a valid key share one limit, so that wrong
// keys can't fill the journal.
func (a *App) Denied(ctx context.Context, action access.Action, campaign string, why error) {
	e := About(ctx, action, campaign)
	a.deny(ctx, &e, why)
}

func (a *App) deny(ctx context.Context, e *access.Entry, why error) {
	most := access.MostDenials
	if e.Who == access.UnknownCaller {
		most = access.MostUnknown
	}
	if write, skipped := a.denials.Take(e.Who, most); write {
		a.recordDenial(ctx, e, skipped, why)
	}
}

func (a *App) recordDenial(ctx context.Context, e *access.Entry, skipped int, why error) {
	e.End(why)
	e.Outcome = access.OutcomeDenied
	located(ctx, e.Details)
	if skipped > 0 {
		e.Details["denied_before"] = skipped
	}
	a.record(ctx, e)
}

// located adds the address of the actor of ctx to the details of an entry, if there is one.
func located(ctx context.Context, details map[string]any) map[string]any {
	if at := access.AddressOf(ctx); at != "" {
		details["address"] = at
	}
	return details
}

// LoggedIn records in the journal that a caller of the console logged in or out. If why is not nil, the log-in was
// refused. Refusals are rate-limited as those of Denied, with a limit of their own.
func (a *App) LoggedIn(ctx context.Context, action access.Action, why error) {
	e := About(ctx, action, "")
	if why == nil {
		e.Details = located(ctx, map[string]any{})
		e.End(nil)
		a.record(ctx, &e)
		return
	}
	if write, skipped := a.denials.Take(string(action)+" "+e.Who, access.MostLogIns); write {
		a.recordDenial(ctx, &e, skipped, why)
	}
}

// HasRead records in the journal that the actor of ctx has read the data of a user or an account. Repeats within 10
// minutes are not recorded. Reads are rate-limited: an entry contains the number of reads before it that were not
// recorded. Without a ledger there is no journal.
func (a *App) HasRead(ctx context.Context, r access.Read) {
	if a.Config.Ledger.DSN == "" {
		return
	}
	e := About(ctx, r.Action, r.Campaign)
	write, skipped := a.reads.Take(e.Who, fmt.Sprintf("%+v", r))
	if !write {
		return
	}
	e.Details = located(ctx, r.Details())
	if skipped > 0 {
		e.Details["read_before"] = skipped
	}
	e.End(nil)
	a.record(ctx, &e)
}
