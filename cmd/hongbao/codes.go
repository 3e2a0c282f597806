package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/shards"
	"github.com/hongbao-project/hongbao/publisher"
)

// codesFrom says where a campaign's codes come from.
func codesFrom(c *hongbao.Campaign) string {
	switch {
	case c.Codes == nil:
		return "-"
	case c.Codes.Pattern != "":
		return "pattern"
	}
	return "file"
}

// readCodes reads the codes that a specification imports; nil if it imports none. The file's name counts from the folder of
// the specification, spec.
func readCodes(spec string, c *hongbao.Campaign) ([]string, error) {
	if c.Codes == nil || c.Codes.File == "" {
		return nil, nil
	}
	path := c.Codes.File
	if spec != "-" && !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(spec), path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, usage("specification %s: codes.file: code_file_invalid: %w; it is needed each time the campaign is created", spec, err)
	}
	defer f.Close() // it was only read
	codes, err := campaign.ReadCodes(f, c.Packets)
	if err != nil {
		return nil, usage("codes of specification %s, file %s: %w", spec, path, err)
	}
	return codes, nil
}

// createCodes stores the codes of a campaign that is in the ledger: those that were read, else drawn by its pattern. It goes
// on where an earlier call was killed.
func (d *deps) createCodes(ctx context.Context, c *hongbao.Campaign, read []string) error {
	if c.Codes == nil {
		return nil
	}
	draw := func(after int64, n int) ([]string, error) { return read[after : after+int64(n)], nil }
	if c.Codes.Pattern != "" {
		draw = func(_ int64, n int) ([]string, error) { return campaign.DrawCodes(c.Codes.Pattern, n), nil }
	} else if err := d.sameCodes(ctx, c.ID, read); err != nil {
		return err
	}
	b := newBar("storing the codes of "+c.ID, c.Packets)
	err := d.ledger.AddCodes(ctx, c.ID, draw, b.set)
	b.end()
	if err != nil || read == nil {
		return err
	}
	return d.sameCodes(ctx, c.ID, read) // another process may have imported another file meanwhile
}

// sameCodes tells whether the codes that the ledger has are those that were read.
func (d *deps) sameCodes(ctx context.Context, id string, read []string) error {
	const page = 10_000
	for after := int64(0); ; {
		has, err := d.ledger.Codes(ctx, id, after, page)
		if err != nil {
			return err
		}
		if !slices.Equal(has, read[after:after+int64(len(has))]) {
			return hongbao.Errorf(hongbao.Conflict, "campaign %s is in the ledger with other codes than the file's, after packet %d; nothing was changed. "+
				"Give the file that it was created with, or take another id", id, after)
		}
		if after += int64(len(has)); len(has) < page {
			return nil
		}
	}
}

// campaignSource tells the publisher currencies and codes: from Redis while it has the campaign, from the ledger after that.
// The ledger is opened when it is first needed.
type campaignSource struct {
	deps *deps

	mu     sync.Mutex
	terms  map[string]publisher.Terms // of campaigns that were found
	ledger *ledger.Ledger
}

// maxTerms bounds what campaignSource remembers.
const maxTerms = 10_000

// Terms gives a campaign's terms, and false if neither Redis nor the ledger has it.
func (s *campaignSource) Terms(ctx context.Context, id string) (terms publisher.Terms, found bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if terms, found = s.terms[id]; found {
		return terms, true, nil
	}
	terms.Currency, terms.Codes, err = shards.Of(s.deps.redis, s.deps.space.Home(id)).Terms(ctx, id)
	if errors.Is(err, shards.ErrNotInRedis) {
		var l *ledger.Ledger
		if l, err = s.open(ctx); err != nil {
			return terms, false, err
		}
		var c ledger.StoredCampaign
		if c, found, err = l.Campaign(ctx, id); err != nil || !found {
			return terms, false, err
		}
		terms = publisher.Terms{Currency: c.Spec.Currency, Codes: c.Spec.Codes != nil}
	} else if err != nil {
		return terms, false, err
	}
	if len(s.terms) >= maxTerms || s.terms == nil {
		s.terms = map[string]publisher.Terms{}
	}
	s.terms[id] = terms
	return terms, true, nil
}

// Codes gives the codes of packets; "" for one that neither Redis nor the ledger has.
func (s *campaignSource) Codes(ctx context.Context, id string, packets []int64) ([]string, error) {
	codes, err := shards.Of(s.deps.redis, s.deps.space.Home(id)).Codes(ctx, id, packets)
	if err != nil || !slices.Contains(codes, "") {
		return codes, err
	}
	s.mu.Lock()
	l, err := s.open(ctx)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return l.CodesOf(ctx, id, packets)
}

// open opens the ledger once. s.mu is held.
func (s *campaignSource) open(ctx context.Context) (*ledger.Ledger, error) {
	if s.ledger == nil {
		l, err := s.deps.newLedger(ctx)
		if err != nil {
			return nil, err
		}
		s.ledger = l
	}
	return s.ledger, nil
}
