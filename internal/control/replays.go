package control

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/access"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/deadletter"
	"github.com/hongbao-project/hongbao/internal/replay"
	"github.com/hongbao-project/hongbao/internal/stream"
	"github.com/hongbao-project/hongbao/internal/web"
)

// replayBody says what is to be replayed. A shard is a text: 0 is one.
type replayBody struct {
	To       string    `json:"to" doc:"balance, kafka, or topic:OTHER."`
	Campaign string    `json:"campaign,omitempty"`
	User     string    `json:"user,omitempty"`
	From     time.Time `json:"from,omitzero" doc:"Grants decided at or after this time."`
	Until    time.Time `json:"until,omitzero" doc:"Grants decided before this time."`
	Shard    string    `json:"shard,omitempty" pattern:"^[0-9]{1,4}$"`
	FirstSeq int64     `json:"first_seq,omitempty" minimum:"1" doc:"With last_seq: only these events of the shard."`
	LastSeq  int64     `json:"last_seq,omitempty" minimum:"1"`
	Dead     string    `json:"dead,omitempty" doc:"The dead letters of this sink, which stay."`
	Missing  bool      `json:"missing,omitempty" doc:"To kafka: push what its sink has finished and the topic lacks."`
	Rate     int64     `json:"rate,omitempty" minimum:"1" doc:"Grants a second at most."`
	DryRun   bool      `json:"dry_run,omitempty" doc:"Count only."`
}

// replaysAnswer lists replays.
type replaysAnswer struct {
	Replays []replayState `json:"replays" nullable:"false"`
}

// replayState is how far a replay is, whoever runs it, and whether this server does.
type replayState struct {
	app.ReplayState
	RunsHere bool `json:"runs_here" doc:"This server runs it. Another one, or hongbao replay, may run it too."`
}

// replayAnswer is what came of a run, or how far it is.
type replayAnswer struct {
	State  *replayState   `json:"state,omitempty" doc:"With 202: how far it is; GET the replay to see it go on."`
	Report *replay.Report `json:"report,omitempty" doc:"With 200: what came of it."`
}

func replayOperations() []operation {
	name := param("name", "path", "The replay's name.", &huma.Schema{Type: huma.TypeString,
		Pattern: "^[a-z0-9_-]{1,57}$"})
	return []operation{
		{
			method: http.MethodGet, path: "/v1/replays", id: "list-replays", summary: "All replays that were ever begun",
			action: access.ReadSinks, answer: replaysAnswer{},
			do: plainRead(func(ctx context.Context, c *call) (any, error) {
				list, err := c.app.Replays(ctx)
				out := replaysAnswer{make([]replayState, len(list))}
				for i := range list {
					out.Replays[i] = c.stateOf(&list[i])
				}
				return out, err
			}),
		},
		{
			method: http.MethodGet, path: "/v1/replays/{name}", id: "show-replay", summary: "How far a replay is",
			action: access.ReadSinks, answer: replayState{}, params: []*huma.Param{name}, codes: []string{"unknown_replay"},
			do: plainRead(func(ctx context.Context, c *call) (any, error) {
				return c.replayState(ctx, c.r.PathValue("name"))
			}),
		},
		{
			method: http.MethodPost, path: "/v1/replays/{name}", id: "start-replay", summary: "Deliver grants once more",
			description: "Goes on after an answer 202, as long as this server lives, and where it was when it is asked for " +
				"again under its name, with a new Idempotency-Key. Begin with dry_run.",
			action: access.Replay, body: replayBody{}, answer: replayAnswer{}, accepted: replayAnswer{},
			params: []*huma.Param{name},
			codes:  []string{"invalid_name", "unknown_sink", "unknown_campaign", "replay_differs", "conflict"},
			do:     startReplay,
		},
		{
			method: http.MethodPost, path: "/v1/replays/{name}/stop", id: "stop-replay", summary: "Stop a replay",
			description: "Stops it if this server runs it. What it has delivered it remembers.",
			action:      access.Replay, body: empty{}, answer: replayState{}, params: []*huma.Param{name},
			codes: []string{"unknown_replay", "not_running_here"},
			do:    stopReplay,
		},
	}
}

// taskOf names the task of a replay.
func taskOf(name string) string { return "replay " + name }

func (c *call) stateOf(s *app.ReplayState) replayState {
	return replayState{*s, c.tasks.running(taskOf(s.Name)) != nil}
}

func (c *call) replayState(ctx context.Context, name string) (replayState, error) {
	unknown := web.Refuse("unknown_replay", "nobody has begun a replay with this name")
	if hongbao.CheckCampaignID(replay.DoneSink(name)) != nil {
		return replayState{}, unknown
	}
	s, found, err := c.app.ReplayState(ctx, name)
	if err == nil && !found {
		err = unknown
	}
	return c.stateOf(&s), err
}

// readReplay reads the body.
func (c *call) readReplay() (o app.Replay, err error) {
	f := c.form
	o = app.Replay{
		Name: c.r.PathValue("name"), To: f.text("to"), Dead: f.text("dead"), Missing: f.flag("missing"),
		DryRun: f.flag("dry_run"), Rate: float64(f.number("rate", 1_000_000_000)), Patience: time.Minute,
		Filter: replay.Filter{Campaign: f.campaign("campaign"), User: f.user("user"), From: f.time("from"),
			To: f.time("until")},
	}
	if hongbao.CheckCampaignID(replay.DoneSink(o.Name)) != nil {
		return o, web.Refuse("invalid_name", "the name has up to 57 of a-z, 0-9, - and _")
	}
	c.readSeqs(&o.Filter)
	if !o.Filter.From.IsZero() && !o.Filter.To.IsZero() && !o.Filter.From.Before(o.Filter.To) {
		f.fail("invalid_value", "from is before until")
	}
	if err := f.done(); err != nil {
		return o, err
	}
	if err := o.Check(); err != nil {
		return o, web.Refuse("invalid_value", err.Error())
	}
	for _, sink := range []string{o.To, o.Dead} {
		if !strings.HasPrefix(sink, "topic:") {
			err = errors.Join(err, c.pickSink(&deadletter.Filter{}, sink))
		}
	}
	return o, errors.Join(err, c.who.Check(access.Replay, o.Filter.Campaign))
}

// readSeqs reads of which shard, and which of its events.
func (c *call) readSeqs(w *replay.Filter) {
	f, shards := c.form, c.app.Config.Deployment.Shards
	if text := f.text("shard"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n >= shards || strconv.Itoa(n) != text {
			f.fail("invalid_value", "shard is one of 0 to %d, as a text", shards-1)
		}
		w.Shard = &n
	}
	most := int64(hongbao.MaxAmount)
	w.Seqs = stream.SeqRange{First: f.number("first_seq", most), Last: f.number("last_seq", most)}
	switch {
	case (w.Seqs.First == 0) != (w.Seqs.Last == 0), w.Seqs.First > w.Seqs.Last:
		f.fail("invalid_value", "first_seq and last_seq go together, and the first is not above the last")
	case w.Seqs.First > 0 && w.Shard == nil && shards > 1:
		f.fail("invalid_value", "first_seq and last_seq need shard: each shard counts for itself")
	}
}

func startReplay(ctx context.Context, c *call) (any, error) {
	o, err := c.readReplay()
	if err != nil {
		return nil, err
	}
	task := taskOf(o.Name)
	if o.DryRun {
		task += " dry run" // beside one that runs
	} else if c.tasks.running(task) != nil {
		return nil, web.Refuse("conflict", "this server runs a replay of this name: GET it to see how far it is")
	}
	answer, err := c.long(ctx, task, nil, app.Needs{}, func(ctx context.Context, own *app.App) (any, error) {
		report, err := own.Replay(ctx, o)
		var found app.FoundError
		if report != nil && errors.As(err, &found) { // the report says it
			err = nil
		}
		return replayAnswer{Report: report}, err
	})
	if _, goesOn := answer.(later); err != nil || !goesOn {
		return answer, err
	}
	s, found, err := c.app.ReplayState(ctx, o.Name)
	if err != nil || !found {
		return later{replayAnswer{}}, err
	}
	state := c.stateOf(&s)
	return later{replayAnswer{State: &state}}, nil
}

func stopReplay(ctx context.Context, c *call) (any, error) {
	if err := c.form.done(); err != nil {
		return nil, err
	}
	name := c.r.PathValue("name")
	s, err := c.replayState(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := c.who.Check(access.Replay, s.Filter.Campaign); err != nil {
		return nil, err
	}
	x := c.tasks.running(taskOf(name))
	if x == nil {
		return nil, web.Refuse("not_running_here", "it has ended, or another server or `hongbao replay` runs it")
	}
	x.stop()
	if _, err := x.wait(ctx, c.cfg.Patience); errors.Is(err, errStillRuns) {
		return nil, hongbao.Errorf(hongbao.ClassTransient, "replay %s still ends", name)
	}
	return c.replayState(ctx, name)
}
