package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/dev/crowd"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/winners"
	"github.com/hongbao-project/hongbao/producer"
)

const (
	allPlaces     = 16
	callersAPlace = 32
)

// placesRow measures what a grab costs Redis in a campaign over many shards, and in one whose shards are nearly all
// empty. All shards are in one Redis, so that INFO cpu covers all of them.
func placesRow(ctx context.Context, o options) ([]Result, error) {
	r, err := newFixture(ctx)
	if err != nil {
		return nil, err
	}
	m := newMeter(r)
	if err = errors.Join(r.wideRounds(ctx, m, o), r.close()); err != nil {
		return nil, err
	}
	how := "processor time of Redis (INFO cpu) for each grab in a campaign over %d of 16 shards, all in one Redis, by one " +
		"producer with %d callers per shard; a limit by user, AOF everysec"
	var all []Result
	for _, places := range []int{4, allPlaces} {
		name := "shards_" + strconv.Itoa(places)
		res := Result{Name: "grab_" + name, Unit: "us", Want: 1.15, Below: true,
			HowOurs: fmt.Sprintf(how, places, callersAPlace), HowBaseline: "the row grab_shards_1: the same in a campaign on one shard"}
		res.compare(m.process[name], m.process["shards_1"])
		res.Beside = map[string]float64{"grabs/s": median(m.rates[name]),
			"grabs/s over one shard": median(m.rates["shards_1"]), "grabs per script call": median(m.size[name])}
		all = append(all, res)
	}
	tail := Result{Name: "grab_tail_16", Unit: "us", HowOurs: "as in the row grab_shards_16, but 15 of the 16 places are empty",
		HowBaseline: "grab_shards_16"}
	tail.compare(m.process["tail"], m.process["shards_16"])
	tail.Beside = map[string]float64{"grabs/s": median(m.rates["tail"])}
	return append(all, tail), nil
}

// wideRounds measures grabs over 1, 4 and all places in turn, and over all places when only one has packets left.
func (r *fixture) wideRounds(ctx context.Context, m *meter, o options) error {
	for range o.rounds {
		for _, places := range []int{1, 4, allPlaces} {
			if err := r.wideGrabs(ctx, m, "shards_"+strconv.Itoa(places), places, o.n(30_000+8_000*places), false); err != nil {
				return err
			}
		}
		if err := r.wideGrabs(ctx, m, "tail", allPlaces, o.n(20_000), true); err != nil {
			return err
		}
	}
	return nil
}

// wideGrabs measures n grabs in a campaign over the given number of places. With tail, only the first place has
// packets.
func (r *fixture) wideGrabs(ctx context.Context, m *meter, name string, places, n int, tail bool) error {
	st, err := r.deployment(ctx, allPlaces)
	if err != nil {
		return err
	}
	packets := 2 * n // so that no place runs out of packets
	if tail {
		packets = places * (n + 1000)
	}
	if err := r.loadWide(ctx, st, places, packets); err != nil {
		return err
	}
	if tail {
		for _, k := range st.Places("bench", places)[1:] {
			if err := r.drain(ctx, k); err != nil {
				return err
			}
		}
	}
	return r.grabbing(ctx, st, func(p *producer.Producer) error {
		for i := range 200 { // the producer reads the campaign before the clock starts
			if err := grab(ctx, p, userGrab(n+i), hongbao.OutcomeGranted); err != nil {
				return err
			}
		}
		return m.measure(ctx, name, n, func() (float64, error) {
			return crowd.Load{Callers: callersAPlace * places, Calls: n}.Run(ctx, func(ctx context.Context, _, i int) error {
				return grab(ctx, p, userGrab(i), hongbao.OutcomeGranted)
			})
		})
	})
}

func (r *fixture) loadWide(ctx context.Context, st *store.Store, places, packets int) error {
	c := spec("bench", packets)
	c.Limits = []hongbao.Limit{{By: hongbao.ByUser, Per: hongbao.PerCampaign, Max: 1}}
	if places > 1 {
		c.Shards = places
	}
	_, err := r.load(ctx, st, c)
	return err
}

// drain grants all packets of a place to users who make no other grabs.
func (r *fixture) drain(ctx context.Context, k store.Place) error {
	call := &store.GrabCall{MaxBacklog: 1e9}
	var answers []hongbao.Answer
	for i := 0; ; i += store.MaxGrabs {
		call.Grabs = call.Grabs[:0]
		for u := range store.MaxGrabs {
			call.Grabs = append(call.Grabs, &hongbao.Grab{User: fmt.Sprintf("d%d-%d", k.Index(), i+u), RequestID: "r"})
		}
		var err error
		if answers, err = k.Grab(ctx, call, answers); err != nil {
			return err
		}
		switch last := answers[len(answers)-1].Outcome; last {
		case hongbao.OutcomeGranted:
		case hongbao.OutcomeSoldOut:
			return nil
		default:
			return fmt.Errorf("drain a place: a grab got %s", last)
		}
	}
}

// soldOutRow compares refusals of a sold-out campaign with refusals of the classic script.
func soldOutRow(ctx context.Context, o options) ([]Result, error) {
	r, err := newFixture(ctx)
	if err != nil {
		return nil, err
	}
	n, m := o.n(300_000), newMeter(r)
	known := 20 * n // more grabs than for the classic script, because these refusals need no call
	var cores, calls []float64
	for range o.rounds {
		if err = r.classicSoldOut(ctx, m, n); err != nil {
			break
		}
		var core, asked float64
		if core, asked, err = r.soldOut(ctx, m, known); err != nil {
			break
		}
		cores, calls = append(cores, core), append(calls, asked)
	}
	rate := Result{
		Name: "sold_out", Unit: "refusals/s", Want: 5,
		HowOurs: fmt.Sprintf("%d grabs of users without a packet, by 512 callers through one producer. All packets are granted, and a "+
			"worker has stored a filter of the winners, so the producer refuses other users without a call to Redis", known),
		HowBaseline: fmt.Sprintf("%d refusals of the classic script when its list is empty, by rueidis, which pipelines, with "+
			"512 callers", n),
	}
	rate.compare(m.rates[ours], m.rates[peer])
	rate.Beside = map[string]float64{"ours, us of Redis per refusal (cpu)": median(m.process[ours]),
		"ours, refusals per script call": median(m.size[ours]), "ours, script calls a second": median(calls),
		"classic script, us of Redis per refusal (cpu)": median(m.process[peer])}
	core := Result{Name: "sold_out_core", Unit: "refusals/s", Least: 1e6,
		HowOurs: "refusals of sold_out per second of processor time of the whole process (getrusage), callers included"}
	core.compare(cores, nil)
	return []Result{rate, core}, errors.Join(err, r.close())
}

// classicSoldOut measures n refusals of the classic script.
func (r *fixture) classicSoldOut(ctx context.Context, m *meter, n int) error {
	sha, err := r.classicStock(ctx, 0)
	if err != nil {
		return err
	}
	return m.measure(ctx, peer, n, func() (float64, error) {
		rate, _, err := runPeer(ctx, "-addr", r.server.Addr, "-sha", sha, "-callers", "512", "-n", strconv.Itoa(n))
		return rate, err
	})
}

// soldOut measures n refusals. It returns how many refusals one core of this process makes per second, and how many
// scripts Redis runs per second meanwhile.
func (r *fixture) soldOut(ctx context.Context, m *meter, n int) (core, calls float64, err error) {
	st, err := r.deployment(ctx, 1)
	if err != nil {
		return 0, 0, err
	}
	const packets = 1000
	if err := r.loadWide(ctx, st, 1, packets); err != nil {
		return 0, 0, err
	}
	losers := make([]hongbao.Grab, 10_000)
	for i := range losers {
		losers[i] = *userGrab(i)
		losers[i].RequestID = "r"
	}
	refuse := func(ctx context.Context, p *producer.Producer, n int) (float64, error) {
		return crowd.Load{Callers: 512, Calls: n}.Run(ctx, func(ctx context.Context, _, i int) error {
			g := losers[i%len(losers)]
			return grab(ctx, p, &g, hongbao.OutcomeSoldOut)
		})
	}
	err = r.grabbing(ctx, st, func(p *producer.Producer) error {
		for i := range packets {
			if err := grab(ctx, p, userGrab(len(losers)+i), hongbao.OutcomeGranted); err != nil {
				return err
			}
		}
		if err := r.knows(ctx, st, func() error { _, err := refuse(ctx, p, len(losers)); return err }); err != nil {
			return err
		}
		used, err := processTime()
		if err != nil {
			return err
		}
		before, err := r.cpu(ctx)
		if err != nil {
			return err
		}
		start := time.Now()
		err = m.measure(ctx, ours, n, func() (float64, error) { return refuse(ctx, p, n) })
		took := time.Since(start)
		now, err1 := processTime()
		after, err2 := r.cpu(ctx)
		core, calls = float64(n)/(now-used).Seconds(), (after.calls-before.calls)/took.Seconds()
		return errors.Join(err, err1, err2)
	})
	return core, calls, err
}

// knows makes losers grab until a worker has stored the filter of the winners and the producer uses it. From then on,
// losers cost Redis almost nothing.
func (r *fixture) knows(ctx context.Context, st *store.Store, losers func() error) error {
	locks, err := st.Locks(store.LockConfig{Lease: 10 * time.Second, Poll: 100 * time.Millisecond})
	if err != nil {
		return err
	}
	cfg := knob.Defaults[winners.BuilderConfig]()
	cfg.Store, cfg.Locks, cfg.Log = st, locks, zap.NewNop()
	builder, err := winners.NewBuilder(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return retry.Poll(ctx, 100*time.Millisecond, func() (bool, error) {
		if err := builder.BuildRequested(ctx); err != nil {
			return false, err
		}
		before, err1 := r.cpu(ctx)
		err := losers()
		after, err2 := r.cpu(ctx)
		return after.calls-before.calls < 10, errors.Join(err1, err, err2)
	})
}

// processTime returns the processor time of this process.
func processTime() (time.Duration, error) {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0, fmt.Errorf("ask for the processor time: %w", err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), nil
}
