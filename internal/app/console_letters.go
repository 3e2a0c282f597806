package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
)

// Letters lists dead letters.
func (s *PageSource) Letters(ctx context.Context, f deadletter.Filter, after string) ([]deadletter.Letter, string,
	error) {
	if err := s.checkSinks("sink", f.Sinks...); err != nil {
		return nil, "", hongbao.Errorf(hongbao.ClassPermanent, "%w", err)
	}
	var p LetterPage
	err := s.Within(ctx, Needs{}, func(a *App) (err error) {
		p, err = a.ListLetters(ctx, f, after, model.PageLen)
		return err
	})
	return p.Letters, string(p.Next), err
}

// Letter gives a dead letter.
func (s *PageSource) Letter(ctx context.Context, id string) (l deadletter.Letter, err error) {
	err = s.Within(ctx, Needs{}, func(a *App) error {
		l, err = a.Letter(ctx, id)
		return err
	})
	if errors.Is(err, deadletter.ErrNoLetter) {
		err = fmt.Errorf("letter %s: it was decided, or never was: %w", id, model.ErrNotFound)
	}
	return l, err
}

// Quarantine lists grants in quarantine.
func (s *PageSource) Quarantine(ctx context.Context, after int64, all bool) ([]ledger.Quarantined, error) {
	l, err := s.sharedLedger(ctx)
	if err != nil {
		return nil, err
	}
	read := l.Quarantine
	if all {
		read = l.QuarantineAll
	}
	return read(ctx, after, model.PageLen)
}

// Quarantined gives a grant in quarantine.
func (s *PageSource) Quarantined(ctx context.Context, id int64) (ledger.Quarantined, error) {
	l, err := s.sharedLedger(ctx)
	if err != nil {
		return ledger.Quarantined{}, err
	}
	q, found, err := l.Quarantined(ctx, id)
	if err == nil && !found {
		err = fmt.Errorf("quarantine %d: %w", id, model.ErrNotFound)
	}
	return q, err
}
