package simulation

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// The kinds of deeds that concern deliveries.
const (
	SinkLate  = "sink_late"  // sink kafka is added while users grab
	SinkAgain = "sink_again" // sink kafka is removed, and later added again
	Refusal   = "refusal"    // a sink refuses some users for good, until a person has spoken with its owners
	Replay    = "replay"     // a person replays grants into a sink; the command dies, and they run it again

	PacketTwice = "packet_twice" // somebody puts a granted packet back into the stock by hand
)

// Deliveries has every deed of deliveries. A plan draws them apart from the others, so their number changes no other
// plan.
var Deliveries = []string{SinkLate, SinkAgain, Refusal, Replay, PacketTwice}

const kafkaSink, balanceSink = "kafka", "balance"

// replays are what a person replays: the target, and whether only what it lacks.
var replays = []string{balanceSink, balanceSink + missing, kafkaSink, kafkaSink + missing}

const missing = " --missing"

// drawDeliveries adds deeds of deliveries to a plan.
func (p *Plan) drawDeliveries(on []string) {
	r := rand.New(rand.NewPCG(p.Seed, 2))
	var drawn []Deed
	add := func(d Deed) {
		if r.IntN(6) == 0 && slices.Contains(on, d.What) {
			drawn = append(drawn, d)
		}
	}
	some := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
	if !p.losesRedis() { // a process without sink kafka does not read the topic when it restores a shard
		add(Deed{What: SinkLate, At: some(p.Faulty / 2)})
		add(Deed{What: SinkAgain, At: p.Faulty/2 + some(p.Faulty/2), For: some(p.Faulty)})
	}
	for _, sink := range []string{balanceSink, kafkaSink} {
		add(Deed{What: Refusal, Who: sink, At: some(p.Faulty / 2), For: time.Second + some(2*p.Faulty)})
	}
	for range 2 {
		add(Deed{What: Replay, Who: replays[r.IntN(len(replays))], At: some(2 * p.Faulty), For: some(time.Second)})
	}
	p.Deeds = append(p.Deeds, drawn...)
	if at := some(p.Faulty / 2); r.IntN(4) == 0 && slices.Contains(on, PacketTwice) {
		p.drawTwice(at)
	}
	if p.changesSinks() { // nobody pauses a sink that is not there
		for i := range p.Deeds {
			if d := &p.Deeds[i]; d.What == SinkPause {
				d.Who = balanceSink
			}
		}
	}
	slices.SortStableFunc(p.Deeds, func(a, b Deed) int { return int(a.At - b.At) })
}

// changesSinks reports whether sink kafka comes or goes. Then the stream is trimmed at once.
func (p *Plan) changesSinks() bool { return p.has(SinkLate) || p.has(SinkAgain) }

// spread is the time in which users begin to grab.
func (p *Plan) spread() time.Duration {
	if p.changesSinks() {
		return 2 * p.Faulty
	}
	return p.Faulty * 2 / 3
}

// toDelivery carries out a deed of deliveries.
func (w *world) toDelivery(ctx context.Context, d *Deed) error {
	switch d.What {
	case Refusal:
		return w.refuse(ctx, d)
	case Replay:
		return w.replay(ctx, d)
	case PacketTwice:
		return w.putBack(ctx)
	}
	w.rolling.Lock()
	defer w.rolling.Unlock()
	if d.What == SinkAgain {
		if err := w.remove(ctx); err != nil {
			return err
		}
		if err := virtual.Sleep(ctx, d.For); err != nil {
			return err
		}
	}
	return w.add(ctx)
}

// Reached has what histories reach about deliveries.
var Reached = []string{lacksUnowed}

const lacksUnowed = "the topic lacks what its sink does not owe"

// Commands returns the commands that deeds of deliveries lead to.
func Commands() (list []string) {
	for _, sink := range []string{balanceSink, kafkaSink} {
		list = append(list, requeued(sink), requeued(sink)+", refused again")
	}
	for _, to := range replays {
		list = append(list, replayed(to), replayed(to)+", which dies")
	}
	return append(list, payTwice)
}

func requeued(sink string) string { return "hongbao dead requeue --sink " + sink }

func replayed(to string) string { return "hongbao replay --to " + to }
