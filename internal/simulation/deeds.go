package simulation

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// do carries a deed out, and returns once it is over.
func (w *world) do(ctx context.Context, d *Deed) error {
	w.note("%s %s for %s", d.What, d.Who, d.For)
	w.cover.note("deed", d.What)
	switch d.What {
	case Kill, Stop, Pause, PartRedis, PartKafka:
		return w.toProcess(ctx, d)
	case RedisDown:
		w.net.down(redisAddr, true)
		defer w.net.down(redisAddr, false)
		return sleep(ctx, d.For)
	case KafkaDown, LongKafka:
		w.kafkaDown(true)
		defer w.kafkaDown(false)
		return sleep(ctx, d.For)
	case Forgotten:
		w.cutBatch(ctx)
		w.kafkaDown(true)
		defer w.kafkaDown(false)
		defer w.forgetProducers()
		return sleep(ctx, d.For)
	case LedgerPause:
		w.db.set(d.For, 0)
		return sleep(ctx, d.For)
	case SlowLedger:
		w.db.set(d.For, 700*time.Millisecond)
		return sleep(ctx, d.For)
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
		p.pause(d.For)
		return sleep(ctx, d.For)
	}
	addrs := []string{redisAddr}
	if d.What == PartKafka {
		addrs = w.plan.brokers()
	}
	for _, addr := range addrs {
		p.part(addr, true)
		defer p.part(addr, false)
	}
	return sleep(ctx, d.For)
}

// clockAhead sets Redis' clock right after a while. Then a producer begins again, tells users, and dies together with
// the last writes.
func (w *world) clockAhead(ctx context.Context, d *Deed) error {
	w.redis.setClock(time.Minute)
	err := sleep(ctx, d.For)
	w.redis.setClock(0)
	if err != nil {
		return err
	}
	if err := w.toProcess(ctx, &Deed{What: Stop, Who: d.Who}); err != nil {
		return err
	}
	if err := sleep(ctx, restartAfter+300*time.Millisecond); err != nil {
		return err
	}
	return w.toRedis(ctx, &Deed{What: TellerDies, Who: d.Who, For: shortLag})
}

// cutBatch waits a while for the next batch. Kafka stores it, and its answer is lost.
func (w *world) cutBatch(ctx context.Context) {
	sent := make(chan struct{})
	w.net.mu.Lock()
	w.net.cut = func() { close(sent) }
	w.net.mu.Unlock()
	select {
	case <-sent:
		_ = sleep(ctx, 10*latency)
	case <-time.After(3 * time.Second):
	case <-ctx.Done():
	}
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.net.cut = nil
}

// forgetProducers makes kfake forget all producers before the next batch. A broker that does not know a producer accepts
// any sequence of it. The library has no such function, so this writes its private fields.
func (w *world) forgetProducers() {
	w.kafka.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		w.kafka.DropControl()
		ids := reachable(reflect.ValueOf(w.kafka).Elem().FieldByName("pids").FieldByName("ids"))
		ids.Set(reflect.MakeMap(ids.Type()))
		return nil, nil, false
	})
}

// fromFile restarts Redis from an append-only file that has nothing of the last time.
func (w *world) fromFile(ctx context.Context, d *Deed) error {
	w.redis.setFile(snapshot(w.redis.Miniredis))
	defer w.redis.setFile(reflect.Value{})
	if err := sleep(ctx, d.For); err != nil {
		return err
	}
	w.redis.mu.Lock()
	file := w.redis.file
	w.redis.mu.Unlock()
	return w.redis.goBack(ctx, file, false)
}

func (w *world) toRedis(ctx context.Context, d *Deed) error {
	switch d.What {
	case OldFile:
		return w.fromFile(ctx, d)
	case Failover, TellerDies:
		w.redis.setLags(true)
		defer w.redis.setLags(false)
		old := snapshot(w.redis.Miniredis)
		if err := sleep(ctx, d.For); err != nil {
			return err
		}
		if d.What == TellerDies {
			if err := w.toProcess(ctx, &Deed{What: Kill, Who: d.Who}); err != nil {
				return err
			}
		}
		return w.redis.goBack(ctx, old, true)
	case QuietStart:
		return w.redis.goBack(ctx, snapshot(w.redis.Miniredis), false)
	case FirstFile:
		return w.redis.goBack(ctx, w.first, false)
	case Flushed:
		w.redis.FlushAll()
	case Full:
		w.redis.setFull(true)
		defer w.redis.setFull(false)
		return sleep(ctx, d.For)
	case ClockAhead:
		return w.clockAhead(ctx, d)
	case ClockBack:
		w.redis.setClock(-5 * time.Second)
		defer w.redis.setClock(0)
		return sleep(ctx, d.For)
	}
	return nil
}
