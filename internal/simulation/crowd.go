package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/simulation/judge"
	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// patience is how long users repeat their grabs after the last fault of a request.
const patience = 90 * time.Second

// user grabs in each campaign, once more than they may hold packets, and repeats each grab until its answer is final.
func (w *world) user(ctx context.Context, u int) {
	r := rand.New(rand.NewPCG(w.plan.Seed, uint64(1000+u)))
	if virtual.Sleep(ctx, time.Duration(r.Int64N(int64(w.plan.spread())))) != nil {
		return
	}
	for _, c := range w.plan.Campaigns {
		if r.IntN(4) == 0 {
			continue
		}
		for n := range c.Hold + int64(r.IntN(2)) {
			g := hongbao.Grab{Campaign: c.ID, User: fmt.Sprintf("u%d", u), RequestID: fmt.Sprintf("r%d-%d", u, n)}
			w.grab(ctx, r, &g)
			w.read(ctx, r, &g)
		}
	}
	if r.IntN(20) == 0 { // a mistake
		w.grab(ctx, r, &hongbao.Grab{Campaign: "rain9", User: fmt.Sprintf("u%d", u), RequestID: "r"})
		w.grab(ctx, r, &hongbao.Grab{Campaign: w.plan.Campaigns[0].ID, User: fmt.Sprintf("u%d\n", u), RequestID: "r"})
	}
}

func (w *world) grab(ctx context.Context, r *rand.Rand, g *hongbao.Grab) {
	end := virtual.Epoch.Add(w.plan.Faulty + w.longest() + patience)
	comesAgain := !time.Now().Before(end) // their request before this one waited so long
	for time.Now().Before(end) {
		if p, dead := w.grabber(r); p != nil {
			mine := *g
			a, err := p.Grab(ctx, &mine)
			switch {
			case dead(): // the program died before it could answer
			case err != nil:
				w.cover.note("grab error", hongbao.ClassOf(err).String())
				if hongbao.ClassOf(err) == hongbao.ClassPermanent {
					return // the request itself is wrong
				}
			default:
				w.cover.note("outcome", string(a.Outcome))
				comesAgain = mayStillWin(a.Outcome)
				if a.Outcome.Final() && !comesAgain {
					w.tell(g, &a)
					w.won(g, &a)
					return
				}
			}
		}
		if virtual.Sleep(ctx, 50*time.Millisecond+time.Duration(r.Int64N(int64(100*time.Millisecond)))) != nil {
			return
		}
	}
	if comesAgain { // Redis may have lost the resume, and the person repeats it at the end
		return
	}
	w.note("user %s gave up %s", g.User, g.RequestID)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gaveUp = append(w.gaveUp, judge.Win{Campaign: g.Campaign, User: g.User, Request: g.RequestID})
}

// mayStillWin reports whether a user who reads the outcome comes again. An earlier try that the network holds back may win
// after a pause, and after the campaign's start; Redis' clock may have gone back behind the start.
func mayStillWin(o hongbao.Outcome) bool {
	return o == hongbao.OutcomePaused || o == hongbao.OutcomeNotStarted
}

// grabber returns who answers a try of a user, nil for nobody, and whether they are dead by now.
func (w *world) grabber(r *rand.Rand) (by grabber, dead func() bool) {
	if place := w.place(r); place != "" {
		return w.gateway.by(place), func() bool { return false }
	}
	p, proc := w.slots[fmt.Sprintf("p%d", r.IntN(w.plan.Producers))].get()
	if p == nil {
		return nil, nil
	}
	return p, proc.IsDead
}

// longest is the time of the last deed's end, after the last fault of a request.
func (w *world) longest() (d time.Duration) {
	for i := range w.plan.Deeds {
		d = max(d, w.plan.Deeds[i].At+w.plan.Deeds[i].For-w.plan.Faulty)
	}
	return d
}

// won demands that a grab is granted by its own request.
func (w *world) won(g *hongbao.Grab, a *hongbao.Answer) {
	for _, x := range a.Receipts {
		if a.Outcome == hongbao.OutcomeGranted && x.RequestID != g.RequestID {
			w.bug("%s grabbed by %s, and was granted packet %d by %s", g.User, g.RequestID, x.Packet, x.RequestID)
		}
	}
}

// tell notes what a user was told.
func (w *world) tell(g *hongbao.Grab, a *hongbao.Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range a.Receipts {
		win := judge.Win{Campaign: g.Campaign, User: g.User, Request: x.RequestID, Packet: x.Packet, Amount: int64(x.Amount),
			Shard: x.Shard, Seq: x.Seq}
		w.told = append(w.told, win)
	}
}
