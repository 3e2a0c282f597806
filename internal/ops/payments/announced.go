package payments

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/turn"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/sinks/publish"
	"github.com/hongbao-project/hongbao/topic"
)

// Unpaid lists the grants of a campaign that are in the topic but not in the ledger. Their users may have seen that
// they won, but they are not paid.
type Unpaid struct {
	Campaign string         `json:"campaign"`
	Grants   int64          `json:"grants"`
	Amount   hongbao.Amount `json:"amount"`
	Currency string         `json:"currency,omitempty"`
	List     []UnpaidGrant  `json:"list"`
}

// UnpaidGrant is a grant that is in the topic but not in the ledger.
type UnpaidGrant struct {
	Event  string         `json:"event"`
	Packet int64          `json:"packet"`
	User   string         `json:"user"`
	Amount hongbao.Amount `json:"amount"`
	Time   time.Time      `json:"time"`
}

// lackedPage is how many grants one query to the ledger checks.
const lackedPage = 1000

// Unpaid reads the topic from the time since on, and returns the grants that the ledger lacks. The function wanted
// selects the grants to check. Without sink kafka there is no topic, so unpaid returns none.
func (a Payments) Unpaid(ctx context.Context, since time.Time, wanted func(*hongbao.Grant) bool) ([]Unpaid, error) {
	if !a.app.Has(configs.SinkKafka) {
		return nil, nil
	}
	l, err := a.app.OpenTopic(ctx)
	if err != nil {
		return nil, app.OfTopic(err)
	}
	defer l.Close()
	from, _, err := l.Offsets(ctx, since)
	if err != nil {
		return nil, app.OfTopic(err)
	}
	s := &unpaidSearch{ledger: a.app.Ledger(), books: a.app.Books(), found: map[string]*Unpaid{}}
	_, err = l.Scan(ctx, from, func(_ publish.Position, e topic.Event) error {
		if !wanted(&e.Grant) {
			return nil
		}
		return s.see(ctx, &e.Grant)
	})
	if err == nil {
		err = s.ask(ctx)
	}
	return s.list(), err
}

// unpaidSearch collects the grants of the topic that the ledger lacks. Its method see may be called concurrently.
type unpaidSearch struct {
	ledger *ledger.Ledger
	books  books.Books

	mu    turn.Lock // held while the ledger is asked
	page  []hongbao.Grant
	found map[string]*Unpaid // by campaign; nil if the campaign is archived: its grants were paid and are in a file
}

func (s *unpaidSearch) see(ctx context.Context, g *hongbao.Grant) error {
	if err := s.mu.LockContext(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.page = append(s.page, *g); len(s.page) < lackedPage {
		return nil
	}
	return s.ask(ctx)
}

// ask removes the collected page, and adds its grants that the ledger lacks to found. The caller has locked mu, unless
// the scan is over.
func (s *unpaidSearch) ask(ctx context.Context) error {
	lacks, err := s.ledger.Lacks(ctx, s.page)
	if err != nil {
		return err
	}
	s.page = s.page[:0]
	for i := range lacks {
		g := &lacks[i]
		u, known := s.found[g.Campaign]
		if !known {
			_, archived, err := s.books.Archived(ctx, g.Campaign)
			if err != nil {
				return err
			}
			if !archived {
				u = &Unpaid{Campaign: g.Campaign, Currency: g.Currency}
			}
			s.found[g.Campaign] = u
		}
		if u == nil {
			continue
		}
		u.List = append(u.List, UnpaidGrant{g.EventID(), g.Packet, g.User, g.Amount, g.Time.UTC()})
	}
	return nil
}

// list returns the found grants in a fixed order. A grant that the topic has several times is listed once.
func (s *unpaidSearch) list() []Unpaid {
	var all []Unpaid
	for _, u := range s.found {
		if u == nil {
			continue
		}
		slices.SortFunc(u.List, func(a, b UnpaidGrant) int {
			return cmp.Or(cmp.Compare(a.Packet, b.Packet), cmp.Compare(a.Event, b.Event))
		})
		u.List = slices.Compact(u.List)
		for i := range u.List {
			u.Grants, u.Amount = u.Grants+1, u.Amount+u.List[i].Amount
		}
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b Unpaid) int { return cmp.Compare(a.Campaign, b.Campaign) })
	return all
}

// DigestOf returns a short hash of the report that a person saw. With --expect DIGEST, the command acts only if its
// report is still the same.
func DigestOf(shown any) (string, error) {
	text, err := json.Marshal(shown)
	if err != nil {
		return "", fmt.Errorf("write what is shown: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6]), nil
}

// Expected returns an error unless expect is the digest of the present report.
func Expected(digest, expect string) error {
	switch expect {
	case digest:
		return nil
	case "":
		return app.Usage("--expect is missing: run the command without --accept-loss or --amount, and pass the digest that it prints")
	}
	return hongbao.Errorf(hongbao.ClassConflict, "the report has changed since --expect was read: its digest is %s, not "+
		"%.40q; nothing was done. Run the command without --accept-loss or --amount, and read its report", digest, expect)
}
