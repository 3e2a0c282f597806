package simulation

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/hongbao-project/hongbao/internal/simulation/virtual"
)

// Deed is a fault that concerns a process or a server, and not one request.
type Deed struct {
	At   time.Duration `json:"at"`
	What string        `json:"what"`
	Who  string        `json:"who,omitempty"` // a process: w0 is the first worker, p0 the first producer
	For  time.Duration `json:"for,omitempty"`
}

// The kinds of deeds.
const (
	Kill        = "kill"         // the process dies without a goodbye, and another one takes its place
	Stop        = "stop"         // the process ends in order, and another one takes its place
	Pause       = "pause"        // the process stands still
	PartRedis   = "part_redis"   // the process and Redis do not reach each other
	PartKafka   = "part_kafka"   // the process and Kafka do not reach each other
	RedisDown   = "redis_down"   // Redis breaks all connections and refuses new ones; it keeps everything
	KafkaDown   = "kafka_down"   // the same of Kafka
	LongKafka   = "long_kafka"   // Kafka is away for longer than leases and sessions of the publisher
	Forgotten   = "forgotten"    // Kafka is away until it has forgotten all producers and their sequences
	Failover    = "failover"     // a copy that lacks the last writes is promoted
	OldFile     = "old_file"     // Redis restarts from a file of some seconds ago
	QuietStart  = "quiet_start"  // Redis restarts and has lost nothing
	TellerDies  = "teller_dies"  // as Failover, and a producer dies in the same moment
	Full        = "full"         // Redis is out of memory
	ClockAhead  = "clock_ahead"  // Redis' clock is ahead, then right; later a producer dies with the last writes
	ClockBack   = "clock_back"   // Redis' clock goes back
	FirstFile   = "first_file"   // Redis restarts from a file of before the first event
	Flushed     = "flushed"      // somebody sends FLUSHALL
	SlowLedger  = "slow_ledger"  // transactions take long
	LedgerPause = "ledger_pause" // no transaction begins

	SinkPause     = "sink_pause"     // a person pauses a sink, and resumes it
	CampaignPause = "campaign_pause" // the same of the first campaign
	TopUp         = "top_up"         // a person adds packets to the first campaign
)

// All has every deed.
var All = []string{Kill, Pause, PartRedis, PartKafka, RedisDown, KafkaDown, LongKafka, Forgotten, Failover, TellerDies,
	OldFile, FirstFile, QuietStart, Full, Stop, ClockAhead, ClockBack, LedgerPause, SlowLedger, SinkPause, CampaignPause,
	TopUp, Flushed}

// families are deeds that generators of their own draw, so that a seed's other deeds stay as they were. Later has all
// of them.
var (
	families = [][]string{KafkaDeeds, Books, Deliveries}
	Later    = append(slices.Concat(families...), Hook)
)

// Plan is what a history has. It depends only on the seed and the deeds that are on, or comes from a file.
type Plan struct {
	Seed      uint64        `json:"seed"`
	Shards    int           `json:"shards"`
	Workers   int           `json:"workers"`
	Producers int           `json:"producers"`
	Users     int           `json:"users"`
	Campaigns []Rain        `json:"campaigns"`
	Faulty    time.Duration `json:"faulty"` // no faults after this time
	Rates     virtual.Rates `json:"rates"`
	Deeds     []Deed        `json:"deeds"`
	Ends      []string      `json:"ends"`             // campaigns that are closed and refunded once all is final
	Serves    int           `json:"serves,omitempty"` // processes of `hongbao serve`
	Holes     bool          `json:"holes"`            // a person decides about withheld packets
	Hook      bool          `json:"hook,omitempty"`   // a webhook is a third sink
	// Subscribers is how many processes read the topic.
	Subscribers int `json:"subscribers,omitempty"`
	// Faults, if not nil, are the faults of requests. Otherwise they are drawn by the Rates.
	Faults []virtual.Fault `json:"faults"`
}

// Rain is a campaign of a Plan.
type Rain struct {
	ID      string `json:"id"`
	Packets int64  `json:"packets"`
	Shards  int    `json:"shards"`
	Hold    int64  `json:"hold"`  // the most packets of a user
	Later   bool   `json:"later"` // its window begins while users grab
}

// Size limits the plans.
type Size struct {
	Users  int
	Faulty time.Duration
	Deeds  int
}

// Usual is the size of a history of some 0.3 s on one core.
var Usual = Size{Users: 60, Faulty: 6 * time.Second, Deeds: 6}

// PlanOf draws the plan of a seed.
func PlanOf(seed uint64, size Size, on []string) Plan {
	r := rand.New(rand.NewPCG(seed, 1))
	p := Plan{Seed: seed, Shards: 1 + r.IntN(2), Workers: 1 + r.IntN(3), Producers: 1 + r.IntN(3), Users: size.Users,
		Faulty: size.Faulty}
	for i := range 1 + r.IntN(3) {
		c := Rain{ID: fmt.Sprintf("rain%d", i), Hold: 1 + r.Int64N(2), Shards: 1}
		if i == 1 {
			c.Shards = p.Shards
		}
		c.Packets = int64(size.Users)*4/10 + r.Int64N(int64(size.Users)*8/10)
		p.Campaigns = append(p.Campaigns, c)
	}
	some := func(most float64) float64 { // each kind of fault is absent in half of the histories
		if r.IntN(2) == 0 {
			return 0
		}
		return r.Float64() * most
	}
	p.Rates = virtual.Rates{CutBefore: some(.03), CutAfter: some(.03), Swallow: some(.01), Delay: some(.05),
		LongDelay: 300 * time.Millisecond}
	p.drawDeeds(r, size, without(on, Later))
	for _, c := range p.Campaigns {
		if r.IntN(3) == 0 {
			p.Ends = append(p.Ends, c.ID)
		}
	}
	p.Holes = r.IntN(2) == 0
	p.Campaigns[len(p.Campaigns)-1].Later = r.IntN(6) == 0
	on = p.oneFamily(on)
	p.drawKafka(on)
	p.drawBooks(size, on)
	p.drawServe(size, on)
	p.drawDeliveries(on)
	p.drawHook(on)
	return p
}

// oneFamily returns the deeds that are on, with one family of later deeds at most: the judge does not know what a
// history owes after deeds of two families.
func (p *Plan) oneFamily(on []string) []string {
	some := slices.DeleteFunc(slices.Clone(families), func(f []string) bool { return len(without(f, on)) == len(f) })
	if len(some) == 0 {
		return on
	}
	keep := rand.New(rand.NewPCG(p.Seed, 3)).IntN(len(some))
	for i, f := range some {
		if i != keep {
			on = without(on, f)
		}
	}
	return on
}

// shortLag is less than a process waits with its first answer until the replica knows it: a replica that lags for
// longer may not know whom to ask.
const shortLag = 450 * time.Millisecond

// producerLife is after how long Kafka forgets a producer, in histories in which it does.
const producerLife = 8 * time.Second

// dataDeeds is how many deeds of a history concern Redis' data at most.
const dataDeeds = 2

func (p *Plan) drawDeeds(r *rand.Rand, size Size, on []string) {
	if len(on) == 0 {
		return
	}
	data := 0
	for range r.IntN(size.Deeds + 1) {
		d := Deed{At: time.Duration(r.Int64N(int64(p.Faulty))), What: on[r.IntN(len(on))],
			For: 100*time.Millisecond + time.Duration(r.Int64N(int64(p.Faulty)))}
		switch d.What {
		case Kill, Stop, Pause, PartRedis, PartKafka:
			d.Who = p.someProcess(r)
		case RedisDown, KafkaDown:
			d.For /= 2
		case ClockAhead:
			d.Who, d.At, d.For = fmt.Sprintf("p%d", r.IntN(p.Producers)), d.At/12, 500*time.Millisecond
		case SinkPause:
			d.Who = []string{"balance", "kafka"}[r.IntN(2)]
		case LongKafka:
			d.For += 20 * time.Second
		case Forgotten:
			d.For += producerLife
		case TellerDies:
			d.Who = fmt.Sprintf("p%d", r.IntN(p.Producers))
			d.For = time.Duration(r.Int64N(int64(shortLag)))
		case Failover:
			d.For = time.Duration(r.Int64N(int64(time.Second)))
		}
		if p.wouldHideAll(d.What) {
			continue
		}
		if slices.Contains([]string{Failover, TellerDies, OldFile, QuietStart, FirstFile, Flushed}, d.What) {
			if data++; data > dataDeeds {
				continue
			}
		}
		p.Deeds = append(p.Deeds, d)
	}
	p.sortDeeds()
}

func (p *Plan) sortDeeds() {
	slices.SortStableFunc(p.Deeds, func(a, b Deed) int { return int(a.At - b.At) })
}

// without returns the kinds of a list that are not in another one.
func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
}

// has reports whether the plan has a deed of a kind.
func (p *Plan) has(what string) bool {
	return slices.ContainsFunc(p.Deeds, func(d Deed) bool { return d.What == what })
}

// needsPerson reports whether the plan may lose what no process can restore, such as packets of a top-up. A restore does
// not trust a topic that is shorter than an open claim has seen it.
func (p *Plan) needsPerson() bool {
	return p.has(OldFile) || p.has(FirstFile) || p.has(Flushed) || p.has(ClockAhead) || p.has(TopUp) || p.has(TopicAgain)
}

// wouldHideAll reports whether another deed would leave nobody who knows of a whole burst: ClockAhead stops the process
// that told the users of it, and kills the next one with Redis' last writes. If Redis then comes back from before the
// first event, or empty, a worker that stood still is all that is left: no margin is large enough, which is a known
// limit of restores.
func (p *Plan) wouldHideAll(what string) bool {
	switch what {
	case ClockAhead:
		return p.has(FirstFile) || p.has(Flushed)
	case FirstFile, Flushed:
		return p.has(ClockAhead)
	}
	return false
}

// hidesTellers reports whether a process that has told users something may be unable to report it.
func (p *Plan) hidesTellers() bool {
	return slices.ContainsFunc([]string{Kill, Stop, Pause, PartRedis, TellerDies, ClockAhead, RedisDown}, p.has)
}

func (p *Plan) someProcess(r *rand.Rand) string {
	if n := r.IntN(p.Workers + p.Producers); n < p.Workers {
		return fmt.Sprintf("w%d", n)
	}
	return fmt.Sprintf("p%d", r.IntN(p.Producers))
}

// how returns what decides about the faults of requests.
func (p *Plan) how() virtual.Chooser {
	if p.Faults != nil {
		return virtual.ListOf(p.Faults)
	}
	return virtual.Draw(p.Seed, p.Rates)
}

// ReadPlan reads a plan that Write has written.
func ReadPlan(name string) (p Plan, err error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return p, fmt.Errorf("read a plan: %w", err)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("read the plan %s: %w", name, err)
	}
	return p, nil
}

// Write writes the plan to a file, for a replay.
func (p *Plan) Write(name string) error {
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return fmt.Errorf("write a plan: %w", err)
	}
	return os.WriteFile(name, append(text, '\n'), 0o600)
}
