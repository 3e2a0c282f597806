package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/dev/local"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Outcome is the last line of the output, as JSON.
type Outcome struct {
	Grabs         int64  `json:"grabs"`
	Granted       int64  `json:"granted"`
	Settled       int64  `json:"settled"`
	Published     int64  `json:"published"`
	Lost          int64  `json:"lost"`
	DoubleCredits int64  `json:"double_credits"`
	Duplicates    int64  `json:"duplicates"`
	Kills         int64  `json:"kills"`
	Stops         int64  `json:"stops"`
	Audit         string `json:"audit"`
	// Refunds is the number of refunds in the ledger. Replayed is the number of events in the fresh topic.
	// ReplayMissing is the number of granted packets that the fresh topic lacks or has with other fields.
	Refunds          int64 `json:"refunds"`
	Replayed         int64 `json:"replayed"`
	ReplayKills      int64 `json:"replay_kills"`
	ReplayDuplicates int64 `json:"replay_duplicates"`
	ReplayMissing    int64 `json:"replay_missing"`
	// Failovers is the number of promotions. RedisLost is the number of events that Redis lost by them. Restored is the
	// number of grants that workers restored.
	Failovers int64 `json:"failovers,omitempty"`
	RedisLost int64 `json:"redis_lost,omitempty"`
	Restored  int64 `json:"restored,omitempty"`
	// Posted is the number of grants that the receiver of the webhook has, PostedAgain the number of repeats with the same
	// id and facts, and PostedWrong the number of requests that must not be.
	Posted      int64 `json:"posted,omitempty"`
	PostedAgain int64 `json:"posted_again,omitempty"`
	PostedWrong int64 `json:"posted_wrong,omitempty"`
}

// The requirements of a run.
const (
	defaultSeconds = 300
	minKills       = 10
	minStops       = 3
	replayKills    = 10
	agrees         = "agrees" // a verdict of the audit
)

func main() {
	s := &soak{say: local.SayTo(os.Stdout), sinks: []string{configs.SinkBalance, configs.SinkKafka, configs.SinkBalance,
		configs.SinkKafka}}
	flag.IntVar(&s.seconds, "seconds", defaultSeconds, "how long the callers grab; at least 40")
	flag.IntVar(&s.rate, "rate", 5_000, "grabs a second")
	flag.StringVar(&s.program, "hongbao", "bin/hongbao", "the program whose workers are killed")
	flag.StringVar(&s.lose, "lose", "", "class of the campaigns, fast or replica: once a minute a replica is promoted, which lags "+
		"if the class is fast; empty for no failover")
	flag.StringVar(&s.hookMode, "hook", "", "adds a webhook whose receiver is bad or dead while the callers grab; empty for none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := s.run(ctx)
	stop()
	if err = errors.Join(err, testkit.CloseAll()); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		fmt.Fprintln(os.Stderr, "soak: the workers' logs are in", s.dir)
	} else {
		err = os.RemoveAll(s.dir)
	}
	line, _ := json.Marshal(s.outcome) // Outcome has only numbers and a string
	fmt.Println(string(line))
	if err != nil {
		os.Exit(1)
	}
}

// soak is the state of one run.
type soak struct {
	seconds, rate int
	program, lose string
	// sinks has the sink of each worker, in the order of the workers' numbers.
	sinks     []string
	hookMode  string
	hook      *hook // nil without a webhook
	say       local.Say
	dir       string
	servers   servers
	env       []string
	campaigns []*raining
	workers   *local.Workers
	outcome   Outcome
	// busyKills and busyStops count the faults that hit a worker whose group had work.
	busyKills, busyStops int64
}

func (s *soak) run(ctx context.Context) (err error) {
	if s.seconds < 40 {
		return fmt.Errorf("%d seconds are too few for %d kills and %d stops: want at least 40", s.seconds, minKills, minStops)
	}
	if s.lose != "" && s.lose != string(hongbao.DurabilityFast) && s.lose != string(hongbao.DurabilityReplica) {
		return fmt.Errorf("-lose %s: want fast or replica", s.lose)
	}
	if s.hookMode != "" && s.hookMode != hookBad && s.hookMode != hookDead {
		return fmt.Errorf("-hook %s: want bad or dead", s.hookMode)
	}
	if s.dir, err = os.MkdirTemp("", "hongbao-soak-"); err != nil {
		return fmt.Errorf("make a folder for logs: %w", err)
	}
	if err := errors.Join(s.startHook(ctx), s.startServers(ctx)); err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	s.workers = s.newWorkers()
	if err := s.workers.While(ctx, s.rain); err != nil {
		return err
	}
	took, err := s.took()
	s.say("workers took %d entries over from those that were killed or stopped", took)
	if took == 0 {
		err = errors.Join(err, errors.New("no fault hit a worker that had entries, so the run tests nothing"))
	}
	return errors.Join(err, judgeStarts(s.workers.List(), s.outcome.Kills), judgeBusy(s.busyKills, s.outcome.Kills),
		s.compare(ctx), s.replay(ctx), s.countRestored(ctx), s.judgeHook(), s.outcome.judge(int64(len(s.campaigns)), s.lose))
}

// rain lets the callers grab while workers are killed and stopped, and then ends every campaign.
func (s *soak) rain(ctx context.Context) error {
	faults, over := make(chan error, 2), make(chan struct{})
	go func() { faults <- s.harass(ctx, over) }()
	go func() { faults <- s.loseWrites(ctx, over) }()
	err := s.grab(ctx)
	close(over)
	if err = errors.Join(err, <-faults, <-faults); err != nil {
		return err
	}
	if s.hook != nil {
		s.hook.quiet.Store(true)
	}
	s.say("%d grabs, %d granted; quiet now, the workers finish", s.outcome.Grabs, s.outcome.Granted)
	s.say("%d of %d kills and %d of %d stops hit a worker whose group had entries pending or undelivered", s.busyKills,
		s.outcome.Kills, s.busyStops, s.outcome.Stops)
	if err := s.audit(ctx); err != nil {
		return err
	}
	return s.end(ctx)
}

// audited records the verdict of an audit. It keeps the first bad verdict.
func (o *Outcome) audited(verdict string) {
	if o.Audit == "" || o.Audit == agrees {
		o.Audit = verdict
	}
}

// judge returns an error for each requirement that the outcome does not meet.
func (o *Outcome) judge(campaigns int64, lose string) error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	need(o.Lost == 0, "%d grants are lost", o.Lost)
	need(o.DoubleCredits == 0, "the balance of %d users differs from the sum of their grants", o.DoubleCredits)
	need(o.Duplicates == 0, "%d grants are in the topic more than once", o.Duplicates)
	need(o.Granted > 0 && o.Settled == o.Granted && o.Published == o.Granted,
		"the numbers of granted, settled and published grants differ")
	need(o.Audit == agrees, "the audit differs")
	need(o.Kills >= minKills && o.Stops >= minStops, "only %d kills and %d stops: want %d and %d", o.Kills, o.Stops,
		minKills, minStops)
	need(o.Refunds == campaigns && campaigns > 0, "%d refunds for %d campaigns", o.Refunds, campaigns)
	need(o.ReplayKills >= replayKills, "the replay was killed only %d times: want %d", o.ReplayKills, replayKills)
	need(o.Replayed == o.Granted, "%d events were replayed, %d were granted", o.Replayed, o.Granted)
	need(o.ReplayDuplicates == 0, "the replay made %d duplicates", o.ReplayDuplicates)
	need(o.ReplayMissing == 0, "the replay misses %d grants", o.ReplayMissing)
	need(lose == "" || o.Failovers > 0, "no replica was promoted")
	need(lose != string(hongbao.DurabilityFast) || o.Restored > 0, "no failover lost a grant, so the run tests nothing")
	return errors.Join(errs...)
}
