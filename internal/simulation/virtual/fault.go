package virtual

import (
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"
)

// Point is a request: the n-th of its kind, from 1, that a process sends to a server. Op is the name of a script, a
// command of Redis, a request of Kafka's protocol, or a moment of the ledger's transactions.
type Point struct {
	Process string `json:"process"`
	Server  string `json:"server"`
	Op      string `json:"op"`
	N       int    `json:"n"`
}

// Kind is what goes wrong at a Point.
type Kind string

// The kinds of faults of a request.
const (
	CutBefore Kind = "cut_before" // the connection breaks, and the server never sees the request
	CutAfter  Kind = "cut_after"  // the server gets the request, and the connection breaks instead of its answer
	Swallow   Kind = "swallow"    // the server gets the request, and its answer never comes: the client times out
	Delay     Kind = "delay"      // the request arrives late
)

// Fault is a fault of one request.
type Fault struct {
	Point

	Kind  Kind          `json:"kind"`
	Delay time.Duration `json:"delay,omitempty"`
}

// Rates are the probabilities of the kinds, for a request.
type Rates struct {
	CutBefore, CutAfter, Swallow, Delay float64
	LongDelay                           time.Duration // the mean of a Delay
}

// Chooser decides whether a request fails.
type Chooser interface {
	choose(p Point) (Fault, bool)
}

// drawn decides by the seed and the point alone. So the same requests fail whenever a history runs again, even if
// goroutines run in another order.
type drawn struct {
	seed  uint64
	rates Rates
}

// Draw chooses by the rates.
func Draw(seed uint64, rates Rates) Chooser { return &drawn{seed, rates} }

func (d *drawn) choose(p Point) (f Fault, is bool) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.Process + "\x00" + p.Server + "\x00" + p.Op + "\x00" + strconv.Itoa(p.N)))
	r := rand.New(rand.NewPCG(d.seed, h.Sum64()))
	x, rates := r.Float64(), &d.rates
	for _, k := range []struct {
		kind Kind
		rate float64
	}{{CutBefore, rates.CutBefore}, {CutAfter, rates.CutAfter}, {Swallow, rates.Swallow}, {Delay, rates.Delay}} {
		if x < k.rate {
			f = Fault{Point: p, Kind: k.kind}
			if k.kind == Delay {
				f.Delay = time.Duration(float64(rates.LongDelay) * r.ExpFloat64())
			}
			return f, true
		}
		x -= k.rate
	}
	return Fault{}, false
}

// listed has the faults of a recorded history.
type listed map[Point]Fault

func (l listed) choose(p Point) (Fault, bool) {
	f, is := l[p]
	return f, is
}

// ListOf chooses the given faults.
func ListOf(faults []Fault) Chooser {
	l := listed{}
	for _, f := range faults {
		l[f.Point] = f
	}
	return l
}
