package pages

import (
	"context"
	"errors"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// Letters lists dead letters.
func (s *Source) Letters(ctx context.Context, f model.LetterFilter, after string) ([]model.Letter, string, error) {
	return s.letters(ctx, f, after, model.PageLen)
}

// LetterGroups groups the first model.MaxLetters of the dead letters that a filter selects.
func (s *Source) LetterGroups(ctx context.Context, f model.LetterFilter) (model.LetterGroups, error) {
	list, next, err := s.letters(ctx, f, "", model.MaxLetters)
	return model.LetterGroups{Groups: model.GroupLetters(list), Letters: int64(len(list)), More: next != ""}, err
}

func (s *Source) letters(ctx context.Context, f model.LetterFilter, after string, limit int) ([]model.Letter, string, error) {
	in := deadletter.Filter{Campaign: f.Campaign, Class: f.Class, User: f.User, Reason: f.Reason, From: f.From, To: f.To}
	if f.Sink != "" {
		in.Sinks = []string{f.Sink}
	}
	if err := s.CheckSinks("sink", in.Sinks...); err != nil {
		return nil, "", hongbao.Errorf(hongbao.ClassPermanent, "%w", err)
	}
	p, err := deliveries.Of(s.App).ListLetters(ctx, in, after, limit)
	return p.Letters, string(p.Next), err
}

// Letter returns a dead letter.
func (s *Source) Letter(ctx context.Context, id string) (l model.Letter, err error) {
	l, err = deliveries.Of(s.App).Letter(ctx, id)
	if errors.Is(err, deadletter.ErrNoLetter) {
		err = fmt.Errorf("dead letter %s: it was resolved, or never existed: %w", id, model.ErrNotFound)
	}
	return l, err
}

// Quarantine lists grants in quarantine.
func (s *Source) Quarantine(ctx context.Context, after int64, all bool) ([]model.Quarantined, error) {
	read := s.Ledger().Quarantine
	if all {
		read = s.Ledger().QuarantineAll
	}
	return read(ctx, after, model.PageLen)
}

// Quarantined returns a grant in quarantine.
func (s *Source) Quarantined(ctx context.Context, id int64) (model.Quarantined, error) {
	q, found, err := s.Ledger().Quarantined(ctx, id)
	if err == nil && !found {
		err = fmt.Errorf("quarantine %d: %w", id, model.ErrNotFound)
	}
	return q, err
}
