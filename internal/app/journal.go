package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/store"
)

// recorded runs an action, and writes it into the journal. do completes the entry. The entry first goes to a list in
// Redis, so the action works while the ledger is down, and the entry outlives this process. Then the entry is moved to
// the ledger. Every change that does not use inLedger goes through recorded.
func (a *App) recorded(ctx context.Context, e access.Entry, do func(context.Context, *access.Entry) error) error {
	err := do(ctx, &e)
	a.write(ctx, &e, err)
	return err
}

// inLedger runs an action in the ledger, and writes its journal entry in the action's own transaction. A failed action
// is recorded afterwards.
func (a *App) inLedger(ctx context.Context, e access.Entry, do func(context.Context, *access.Entry) error) error {
	err := a.ledger.Together(ctx, func(ctx context.Context) error {
		if err := do(ctx, &e); err != nil {
			return err
		}
		e.End(nil)
		return a.ledger.Record(ctx, e)
	})
	if err != nil {
		a.write(ctx, &e, err)
	}
	return err
}

// about returns a new entry about a campaign.
func about(ctx context.Context, action access.Action, campaign string) access.Entry {
	e := access.NewEntry(ctx, action)
	e.Campaign = campaign
	return e
}

// journalTime bounds how long a command waits for its entry to be written.
const journalTime = 3 * time.Second

// write writes the result of an action. It does not write an invalid request.
func (a *App) write(ctx context.Context, e *access.Entry, err error) {
	var usage UsageError
	var found FoundError
	if errors.As(err, &usage) || ledger.Repeats(ctx, err) {
		return
	}
	if errors.As(err, &found) { // the action is done, and a person has to look at the result
		err = nil
	}
	e.End(err)
	a.record(ctx, e)
}

// record writes an entry. A failure here does not change the action's answer.
func (a *App) record(ctx context.Context, e *access.Entry) {
	// The entry is written even after the caller is gone or the caller's transaction was rolled back.
	ctx, cancel := context.WithTimeout(ledger.Apart(context.WithoutCancel(ctx)), journalTime)
	defer cancel()
	if !a.redisOpen.Load() {
		if err := a.ledger.Record(ctx, *e); err != nil {
			a.log.Warn("an action is not in the journal", zap.Any("entry", e), zap.Error(err))
		}
		return
	}
	if err := a.leave(ctx, e); err != nil {
		if lerr := a.ledger.Record(ctx, *e); lerr != nil {
			a.log.Warn("an action is not in the journal", zap.Any("entry", e), zap.Error(errors.Join(err, lerr)))
		}
		return
	}
	if a.tended { // tendJournal moves the entry
		return
	}
	if err := a.moveJournal(ctx); err != nil {
		a.log.Info("the journal's entry waits in Redis; a server or `hongbao journal` moves it to the ledger", zap.Error(err))
	}
}

// maxWaiting bounds the entries that wait in Redis for the ledger, about 25 MB, because the grabs need the memory.
// Beyond the bound new entries are rejected and the oldest are kept: they show how the problem began.
const maxWaiting = 50_000

var errFull = fmt.Errorf("%d entries of the journal wait in Redis, which is the maximum: restore the ledger", maxWaiting)

// leave pushes an entry to the list in Redis.
func (a *App) leave(ctx context.Context, e *access.Entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	n, err := a.redis.LLen(ctx, a.store.Journal()).Result()
	if err == nil && n >= maxWaiting {
		err = errFull
	}
	if err != nil {
		return err
	}
	return a.redis.LPush(ctx, a.store.Journal(), text).Err()
}

// moveJournal moves the waiting entries from Redis to the ledger. Several processes may run it concurrently, and may
// be killed: the ledger keeps an entry that is written twice once.
func (a *App) moveJournal(ctx context.Context) error {
	const page = 100
	key := a.store.Journal()
	for {
		texts, err := a.redis.LRange(ctx, key, -page, -1).Result()
		if err != nil || len(texts) == 0 {
			return wrapJournal(store.Classify(err))
		}
		if err := a.recordTexts(ctx, texts); err != nil {
			return wrapJournal(err)
		}
		if _, err := a.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, text := range texts {
				p.LRem(ctx, key, -1, text)
			}
			return nil
		}); err != nil {
			return wrapJournal(store.Classify(err))
		}
	}
}

// recordTexts writes the entries that waited. An entry that the ledger can never take does not block the others: a
// note replaces it.
func (a *App) recordTexts(ctx context.Context, texts []string) error {
	entries := make([]access.Entry, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal([]byte(text), &entries[i]); err != nil || entries[i].ID == "" {
			entries[i] = a.noteFor(text, err)
		}
	}
	err := a.ledger.Record(ctx, entries...)
	if err == nil || hongbao.ClassOf(err) != hongbao.ClassPermanent {
		return err
	}
	for i := range entries {
		err := a.ledger.Record(ctx, entries[i])
		if err != nil && hongbao.ClassOf(err) == hongbao.ClassPermanent {
			err = a.ledger.Record(ctx, a.noteFor(texts[i], err))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxUnreadable bounds the part of the replaced text that a note has, in bytes.
const maxUnreadable = 4000

// noteFor returns a note that replaces an entry that can't be written. The same text gets the same note.
func (a *App) noteFor(text string, why error) access.Entry {
	if why == nil {
		why = errors.New("it has no id")
	}
	a.log.Warn("an entry that waited for the journal can't be written; a note replaces it", zap.String("text", text),
		zap.Error(why))
	return access.Entry{
		ID: "unreadable-" + access.Hash(text), Time: time.Now(), Who: "unknown", Action: "unreadable",
		Outcome: access.OutcomeUnknown,
		Details: map[string]any{"error": why.Error(), "entry": text[:min(len(text), maxUnreadable)]},
	}
}

func wrapJournal(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("move the journal from Redis to the ledger: %w", err)
}

// TendJournal moves waiting entries from Redis to the ledger until stop is called. A server calls it before its first
// request.
func (a *App) TendJournal(ctx context.Context) (stop func()) {
	a.tended = true
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { a.tendJournal(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// journalEvery is how often a server looks for entries that wait in Redis.
const journalEvery = time.Second

// tendJournal moves waiting entries from Redis to the ledger, until ctx ends, and then once more.
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

// Journal returns a page of the journal, the newest entries first. Before that it moves the entries that wait in
// Redis to the ledger, if Redis can be reached.
func (a *App) Journal(ctx context.Context, q access.JournalQuery) (access.JournalPage, error) {
	if q.After == "" {
		err := a.openRedis(ctx)
		if err == nil {
			mctx, cancel := context.WithTimeout(ctx, journalTime)
			defer cancel()
			err = a.moveJournal(mctx)
		}
		if err != nil {
			a.log.Info("entries of the journal that wait in Redis are not in this list", zap.Error(err))
		}
	}
	return a.ledger.Journal(ctx, q)
}

// Denied records in the journal that a caller was denied an action. Denials are rate-limited: an entry counts the
// denials before it that were not written.
func (a *App) Denied(ctx context.Context, action access.Action, campaign string, why error) {
	e := about(ctx, action, campaign)
	write, skipped := a.denials.Take(e.Who)
	if !write {
		return
	}
	e.Outcome, e.Details = access.OutcomeDenied, map[string]any{"error": why.Error()}
	if skipped > 0 {
		e.Details["denied_before"] = skipped
	}
	a.record(ctx, &e)
}
