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
	if err := s.CheckSinks("sink", f.Sinks...); err != nil {
		return nil, "", hongbao.Errorf(hongbao.ClassPermanent, "%w", err)
	}
	p, err := s.ListLetters(ctx, f, after, model.PageLen)
	return p.Letters, string(p.Next), err
}

// Letter returns a dead letter.
func (s *PageSource) Letter(ctx context.Context, id string) (l deadletter.Letter, err error) {
	l, err = s.App.Letter(ctx, id)
	if errors.Is(err, deadletter.ErrNoLetter) {
		err = fmt.Errorf("dead letter %s: it was resolved, or never existed: %w", id, model.ErrNotFound)
	}
	return l, err
}

// Quarantine lists grants in quarantine.
func (s *PageSource) Quarantine(ctx context.Context, after int64, all bool) ([]ledger.Quarantined, error) {
	read := s.ledger.Quarantine
	if all {
		read = s.ledger.QuarantineAll
	}
	return read(ctx, after, model.PageLen)
}

// Quarantined returns a grant in quarantine.
func (s *PageSource) Quarantined(ctx context.Context, id int64) (ledger.Quarantined, error) {
	q, found, err := s.ledger.Quarantined(ctx, id)
	if err == nil && !found {
		err = fmt.Errorf("quarantine %d: %w", id, model.ErrNotFound)
	}
	return q, err
}
