package simulation

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// do carries a deed out, and returns once it is over.
func (w *world) do(ctx context.Context, d *Deed) error {
	w.note("%s %s for %s", d.What, d.Who, d.For)
	w.cover.note("deed", d.What)
	switch d.What {
	case Kill, Stop, Pause, PartRedis, PartKafka:
		return w.toProcess(ctx, d)
	case RedisDown:
		w.net.Down(virtual.RedisAddr, true)
		defer w.net.Down(virtual.RedisAddr, false)
		return virtual.Sleep(ctx, d.For)
	case KafkaDown, LongKafka:
		w.kafkaDown(true)
		defer w.kafkaDown(false)
		return virtual.Sleep(ctx, d.For)
	case Forgotten:
		w.cutBatch(ctx)
		w.kafkaDown(true)
		defer w.kafkaDown(false)
		defer w.forgetProducers()
		return virtual.Sleep(ctx, d.For)
	case LedgerPause:
		w.db.set(d.For, 0)
		return virtual.Sleep(ctx, d.For)
	case SlowLedger:
		w.db.set(d.For, 700*time.Millisecond)
		return virtual.Sleep(ctx, d.For)
	case SinkPause, CampaignPause, TopUp:
		return w.byOperator(ctx, d)
	case LedgerBack, LedgerReadOnly, EndEarly:
		return w.onBooks(ctx, d)
	case SinkLate, SinkAgain, Refusal, Replay, PacketTwice:
		return w.toDelivery(ctx, d)
	}
	if slices.Contains(KafkaDeeds, d.What) {
		return w.toKafka(ctx, d)
	}
	return w.toRedis(ctx, d)
}

func (w *world) toProcess(ctx context.Context, d *Deed) error {
	s := w.slots[d.Who]
	_, p := s.get()
	if p == nil {
		return nil
	}
	switch d.What {
	case Kill, Stop:
		select {
		case s.ended <- d.What:
		default: // it dies already
		}
		return nil
	case Pause:
		p.Pause(d.For)
		return virtual.Sleep(ctx, d.For)
	}
	addrs := []string{virtual.RedisAddr}
	if d.What == PartKafka {
		addrs = w.plan.brokers()
	}
	for _, addr := range addrs {
		p.Part(addr, true)
		defer p.Part(addr, false)
	}
	return virtual.Sleep(ctx, d.For)
}

// clockAhead sets Redis' clock right after a while. Then a producer begins again, tells users, and dies together with
// the last writes.
func (w *world) clockAhead(ctx context.Context, d *Deed) error {
	w.redis.SetClock(time.Minute)
	err := virtual.Sleep(ctx, d.For)
	w.redis.SetClock(0)
	if err != nil {
		return err
	}
	if err := w.toProcess(ctx, &Deed{What: Stop, Who: d.Who}); err != nil {
		return err
	}
	if err := virtual.Sleep(ctx, restartAfter+300*time.Millisecond); err != nil {
		return err
	}
	return w.toRedis(ctx, &Deed{What: TellerDies, Who: d.Who, For: shortLag})
}

// cutBatch waits a while for the next batch. Kafka stores it, and its answer is lost.
func (w *world) cutBatch(ctx context.Context) {
	sent := make(chan struct{})
	w.net.CutNext(func() { close(sent) })
	defer w.net.CutNext(nil)
	select {
	case <-sent:
		_ = virtual.Sleep(ctx, 10*virtual.Latency)
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
	}
}

// forgetProducers makes kfake forget all producers before the next batch. A broker that does not know a producer accepts
// any sequence of it. The library has no such function, so this writes its private fields.
func (w *world) forgetProducers() {
	w.kafka.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		w.kafka.DropControl()
		ids := virtual.Reachable(reflect.ValueOf(w.kafka).Elem().FieldByName("pids").FieldByName("ids"))
		ids.Set(reflect.MakeMap(ids.Type()))
		return nil, nil, false
	})
}

// fromFile restarts Redis from an append-only file that has nothing of the last time.
func (w *world) fromFile(ctx context.Context, d *Deed) error {
	w.redis.SetFile(virtual.Snapshot(w.redis.Miniredis))
	defer w.redis.SetFile(reflect.Value{})
	if err := virtual.Sleep(ctx, d.For); err != nil {
		return err
	}
	return w.redis.GoBack(ctx, w.redis.Synced(), false)
}

func (w *world) toRedis(ctx context.Context, d *Deed) error {
	switch d.What {
	case OldFile:
		return w.fromFile(ctx, d)
	case Failover, TellerDies:
		w.redis.SetLags(true)
		defer w.redis.SetLags(false)
		old := virtual.Snapshot(w.redis.Miniredis)
		if err := virtual.Sleep(ctx, d.For); err != nil {
			return err
		}
		if d.What == TellerDies {
			if err := w.toProcess(ctx, &Deed{What: Kill, Who: d.Who}); err != nil {
				return err
			}
		}
		return w.redis.GoBack(ctx, old, true)
	case QuietStart:
		return w.redis.GoBack(ctx, virtual.Snapshot(w.redis.Miniredis), false)
	case FirstFile:
		return w.redis.GoBack(ctx, w.first, false)
	case Flushed:
		w.redis.FlushAll()
	case Full:
		w.redis.SetFull(true)
		defer w.redis.SetFull(false)
		return virtual.Sleep(ctx, d.For)
	case ClockAhead:
		return w.clockAhead(ctx, d)
	case ClockBack:
		w.redis.SetClock(-5 * time.Second)
		defer w.redis.SetClock(0)
		return virtual.Sleep(ctx, d.For)
	}
	return nil
}
