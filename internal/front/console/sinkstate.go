package console

import (
	"time"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// sinkJudgement is what a page says about a sink: one sentence, what it means for users, and what to do.
type sinkJudgement struct {
	Level     level
	Say       model.Sentence
	Means, Do []model.Sentence
	// Command is what to run; empty if there is nothing to run. Original is the text of the worker's error.
	Command, Original string
	// Runbook is the code of the runbook of a fault; "" if there is none.
	Runbook string
}

// sinkRunbooks are the codes of the runbooks for the states of a sink.
var sinkRunbooks = map[deliveries.SinkState]string{deliveries.SinkUnread: "redis_down", deliveries.SinkPaused: "sink_paused",
	deliveries.SinkDown: "sink_down", deliveries.SinkNoWorker: "no_worker", deliveries.SinkBehind: "grants_wait"}

// sinkView is a sink on the page of deliveries.
type sinkView struct {
	deliveries.SinkStatus
	Name      model.Sentence
	Judgement sinkJudgement
}

// viewSinks judges the sinks.
func viewSinks(now *reading, _ *access.Caller) any {
	list, ok := now.data.([]deliveries.SinkStatus)
	if !ok {
		return now.data
	}
	views := make([]sinkView, len(list))
	for i := range list {
		views[i] = sinkView{list[i], deliveryTo(list[i].Sink), judgeSink(&list[i])}
	}
	return views
}

// judgeSink judges a sink. It is crimson only if winners wait for their money until a person acts.
func judgeSink(s *deliveries.SinkStatus) sinkJudgement {
	var oldest time.Duration
	if s.Oldest != nil {
		oldest = time.Duration(*s.Oldest * float64(time.Second))
	}
	pays := s.Sink == configs.SinkBalance
	fault := levelWait
	waiting := model.Say("Only the programs that read from this sink wait. Payments do not depend on it.")
	if pays {
		fault, waiting = levelBad, model.Say("Winners wait for their money. They keep their packets, and nobody is paid twice.")
	}
	j := sinkJudgement{Level: levelWait}
	switch s.State {
	case deliveries.SinkUnread:
		j.Level, j.Say = levelBad, model.Say("%d of %d shards could not be read.", len(s.Unread), len(s.Unread)+len(s.Shards))
		j.Means = []model.Sentence{model.Say("The numbers are those of the other shards only.")}
		j.Command = "hongbao doctor"
	case deliveries.SinkPaused:
		j.Say = model.Say("Paused by %s: “%s”. %d grants wait.", s.Pause.By, s.Pause.Why, s.Waiting)
		j.Means = []model.Sentence{waiting}
	case deliveries.SinkDown:
		j.Level, j.Say, j.Original = fault, model.Say("Down: %d grants wait, the oldest %s.", s.Waiting, oldest), string(s.Why)
		j.Means = []model.Sentence{waiting}
		j.Do = []model.Sentence{model.Say("Bring its target back. Workers then go on by themselves.")}
	case deliveries.SinkNoWorker:
		j.Say = model.Say("No worker runs. Nothing waits.")
		if s.Waiting > 0 {
			j.Level, j.Say = fault, model.Say("No worker runs: %d grants wait, the oldest %s.", s.Waiting, oldest)
			j.Means = []model.Sentence{waiting}
		}
		j.Do, j.Command = []model.Sentence{model.Say("Start a worker.")}, "hongbao work"
		if s.Program != "" {
			j.Command = string(s.Program)
		}
	case deliveries.SinkBehind:
		j.Say = model.Say("Behind: %d grants wait, the oldest %s.", s.Waiting, oldest)
		j.Means = []model.Sentence{waiting}
		j.Do, j.Command = []model.Sentence{model.Say("Its target is slow, its rate is limited, or a campaign is paused for it.")}, "hongbao doctor"
	case deliveries.SinkWorking:
		j = working(s, oldest)
	}
	j.Runbook = sinkRunbooks[s.State]
	if s.Dead > 0 {
		givenUp := model.Say("%d deliveries were given up and wait for a person.", s.Dead)
		if s.State == deliveries.SinkWorking { // what is wrong comes first
			j.Say, givenUp, j.Runbook = givenUp, j.Say, "dead_letter"
		}
		j.Means = append(j.Means, givenUp)
		j.Do = append(j.Do, model.Say("Look at the dead letters."))
		if j.Level != levelBad {
			j.Level = fault
		}
	}
	return j
}

func working(s *deliveries.SinkStatus, oldest time.Duration) sinkJudgement {
	switch {
	case s.Waiting == 0:
		return sinkJudgement{Level: levelOK, Say: model.Say("Works: nothing waits.")}
	case oldest <= waits:
		return sinkJudgement{Level: levelOK, Say: model.Say("Works: %d grants are on the way, the oldest %s.", s.Waiting, oldest)}
	}
	return sinkJudgement{Level: levelInfo, Say: model.Say("Works: %d grants are on the way, the oldest %s.", s.Waiting, oldest)}
}

// Alive counts the workers that run.
func (v *sinkView) Alive() int {
	n := 0
	for i := range v.Workers {
		if v.Workers[i].Alive {
			n++
		}
	}
	return n
}
