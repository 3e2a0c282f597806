package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
	"github.com/hongbao-project/hongbao/internal/operate/audit"
	"github.com/hongbao-project/hongbao/internal/ops/books"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// The kinds of deeds that concern the ledger's books.
const (
	LedgerBack     = "ledger_back"      // a standby that lacks the last commits takes the ledger's place
	LedgerReadOnly = "ledger_read_only" // the ledger refuses transactions for a while, perhaps in the middle of one
	EndEarly       = "end_early"        // a person closes and refunds a campaign while users grab
)

// Books has the deeds that concern the ledger's books, and Serve. They have draws of their own.
var Books = []string{LedgerBack, LedgerReadOnly, EndEarly, Serve}

// The moments at which a LedgerReadOnly begins, instead of its time.
const (
	atCommit = "commit" // before the COMMIT of a worker's next transaction
	atAnswer = "answer" // after it
)

// drawBooks adds deeds that concern the ledger's books.
func (p *Plan) drawBooks(size Size, on []string) {
	r := rand.New(rand.NewPCG(p.Seed, 7))
	for _, what := range []string{LedgerBack, LedgerReadOnly, EndEarly} {
		often := 1 // of 6
		if what == LedgerBack {
			often = 3 // most plans have other deeds that exclude it
		}
		if len(on) <= len(Books) { // only a few kinds are wanted
			often = 6
		}
		d := Deed{At: time.Duration(r.Int64N(int64(size.Faulty))), What: what,
			For: 100*time.Millisecond + time.Duration(r.Int64N(int64(size.Faulty/2)))}
		moment, campaign, drawn := r.IntN(3), r.IntN(len(p.Campaigns)), r.IntN(6) < often
		if !drawn || !slices.Contains(on, what) {
			continue
		}
		switch what {
		case LedgerReadOnly:
			d.Who = []string{"", atCommit, atAnswer}[moment]
		case LedgerBack:
			// Redis and the ledger both going back is no promise (docs/disaster.md). A lost top-up can't be paid.
			if p.losesRedis() || p.has(QuietStart) || p.has(TopUp) {
				continue
			}
		case EndEarly:
			d.Who = p.Campaigns[campaign].ID
			d.At /= 2       // users begin in the first two thirds of the time
			p.Holes = false // a refund returns withheld packets: nobody can grant them later
		}
		p.Deeds = append(p.Deeds, d)
	}
	slices.SortStableFunc(p.Deeds, func(a, b Deed) int { return int(a.At - b.At) })
}

// ended has the campaigns that a person ends.
func (p *Plan) ended() []string {
	list := slices.Clone(p.Ends)
	for i := range p.Deeds {
		if d := &p.Deeds[i]; d.What == EndEarly && !slices.Contains(list, d.Who) {
			list = append(list, d.Who)
		}
	}
	return list
}

// onBooks carries out a deed that concerns the ledger's books.
func (w *world) onBooks(ctx context.Context, d *Deed) error {
	switch d.What {
	case LedgerBack:
		return w.ledgerBack(ctx, d)
	case LedgerReadOnly:
		return w.readOnly(ctx, d)
	}
	err := w.endOne(ctx, d.Who)
	if time.Since(virtual.Epoch) < w.plan.Faulty {
		w.cover.note("ledger", "refunded while users grab")
	}
	return err
}

// unlessLate returns the error of a command about a campaign, unless it was refused because a person ends the campaign.
func (w *world) unlessLate(campaign string, err error) error {
	ends := slices.ContainsFunc(w.plan.Deeds, func(d Deed) bool {
		return d.What == EndEarly && d.Who == campaign && time.Since(virtual.Epoch) > d.At
	})
	if err != nil && ends && hongbao.ClassOf(err) == hongbao.ClassPermanent {
		w.note("refused: %v", err)
		return nil
	}
	return err
}

// trapTime is how long a LedgerReadOnly waits for the transaction in which it begins.
const trapTime = 3 * time.Second

func (w *world) readOnly(ctx context.Context, d *Deed) error {
	defer w.db.refuse(nil)
	if d.Who != "" {
		at := sqlite.GateCommit
		if d.Who == atAnswer {
			at = sqlite.GateAnswer
		}
		select {
		case <-w.db.setTrap(at):
			w.cover.note("ledger", "read-only in a transaction: "+d.Who)
			return virtual.Sleep(ctx, d.For)
		case <-time.After(trapTime):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	w.db.refuse(errReadOnly)
	return virtual.Sleep(ctx, d.For)
}

// ledgerBack promotes a standby that has got nothing for a while. Then a person restores the ledger.
func (w *world) ledgerBack(ctx context.Context, d *Deed) (err error) {
	defer func() {
		if err != nil && ctx.Err() == nil {
			w.bug("%s: %v", d.What, err)
		}
	}()
	if err := w.db.replicate(ctx); err != nil {
		return err
	}
	defer w.db.drop()
	if err := virtual.Sleep(ctx, d.For); err != nil {
		return err
	}
	w.db.refuse(errAway)
	defer w.db.refuse(nil)
	grants, refunds, err := w.db.counts(ctx)
	if err != nil {
		return err
	}
	if err := w.db.promote(ctx); err != nil {
		return err
	}
	left, leftRefunds, err := w.db.counts(ctx)
	if err != nil {
		return err
	}
	w.note("the ledger went back: %d of %d grants are left, %d of %d refunds", left, grants, leftRefunds, refunds)
	if left < grants {
		w.cover.note("ledger", "a promotion lost grants")
	}
	if leftRefunds < refunds {
		w.cover.note("ledger", "a promotion lost a refund")
		w.mu.Lock()
		w.lostRefund = true
		w.mu.Unlock()
	}
	if err := virtual.Sleep(ctx, virtual.Away); err != nil {
		return err
	}
	w.db.refuse(nil)
	return w.restoreLedger(ctx, d)
}

// restoreLedger does what docs/disaster.md demands of a person after such a promotion: they stop the workers, run the
// audit, pay what the ledger lacks, start the workers, and repeat the refunds that are lost.
func (w *world) restoreLedger(ctx context.Context, d *Deed) error {
	_ = virtual.Sleep(ctx, thinking)
	restart, err := w.stopWorkers(ctx)
	defer restart()
	if err != nil {
		return err
	}
	if err := w.persist(ctx, "hongbao audit", "", func(ctx context.Context, a *app.App) error {
		report, err := books.Of(a).Audit(ctx, audit.Options{})
		if err != nil {
			return err
		}
		for i := range report.Differences {
			switch k := report.Differences[i].Kind; k {
			case audit.LedgerUnbalanced, audit.DoubleCredit:
				w.bug("the audit of a promoted ledger names %s: %+v", k, report.Differences[i])
			case audit.Lost:
				w.cover.note("ledger", "the audit names lost grants")
			default:
			}
		}
		return nil
	}); err != nil {
		return err
	}
	name := fmt.Sprintf("restored-%d", d.At)
	if err := w.persist(ctx, "hongbao replay --to balance --missing", "", func(ctx context.Context, a *app.App) error {
		report, err := deliveries.Of(a).Replay(ctx, deliveries.Replay{Name: name, To: "balance", Missing: true})
		if report != nil && report.Delivered > 0 {
			w.cover.note("person", "hongbao replay --missing")
		}
		return err
	}); err != nil {
		return err
	}
	restart()
	return w.endAgain(ctx)
}

// stopWorkers stops all workers, and waits until they have ended. restart lets their places start others.
func (w *world) stopWorkers(ctx context.Context) (restart func(), err error) {
	var workers []*slot
	for name, s := range w.slots {
		if strings.HasPrefix(name, "w") {
			workers = append(workers, s)
		}
	}
	hold := func(held bool) {
		for _, s := range workers {
			s.hold(held)
		}
	}
	hold(true)
	for _, s := range workers {
		for s.lives() {
			select {
			case s.ended <- Stop:
			default:
			}
			if err := virtual.Sleep(ctx, 100*time.Millisecond); err != nil {
				return func() { hold(false) }, err
			}
		}
	}
	return func() { hold(false) }, nil
}

// endOne closes and refunds a campaign. Redis may lose a close before the refund; then the refund demands another one. It
// may also lose the end of a pause: then the refund keeps settling, and the person resumes the sink again.
func (w *world) endOne(ctx context.Context, id string) error {
	err := w.persist(ctx, "campaign close and refund "+id, id, func(ctx context.Context, a *app.App) error {
		if _, err := campaigns.Of(a).Close(ctx, id, true); err != nil {
			return err
		}
		err := w.refund(ctx, a, id)
		if errors.Is(err, payment.ErrSettling) { // still, after half a minute
			return errors.Join(err, w.resumeEnded(ctx, a))
		}
		return err
	})
	if errors.Is(err, errGivenUp) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil && !slices.Contains(w.refunded, id) {
		w.refunded = append(w.refunded, id)
	}
	return err
}

// endAgain repeats the ends of campaigns, which the ledger may have lost.
func (w *world) endAgain(ctx context.Context) error {
	w.mu.Lock()
	ids := w.refunded
	if w.lostRefund {
		w.cover.note("person", "a refund again")
	}
	w.mu.Unlock()
	for _, id := range ids {
		if err := w.endOne(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
