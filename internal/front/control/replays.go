package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/front/web"
	"github.com/hongbao-project/hongbao/internal/ops"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

type replaysAnswer struct {
	Replays []replayState `json:"replays" nullable:"false" doc:"The replays, in the order of their names."`
}

// replayState is the progress of a replay, on whichever server or command it runs.
type replayState struct {
	deliveries.ReplayState
	RunsHere bool `json:"runs_here" doc:"True if this server runs the replay now. If false, another server or a hongbao replay command may run it."`
}

// replayAnswer is the report of a replay, or its progress.
type replayAnswer struct {
	State  *replayState `json:"state,omitempty" doc:"With status 202: the progress so far. To see later progress, GET the replay."`
	Report *report      `json:"report,omitempty" doc:"With status 200: the result of the run."`
}

func replayOperations() []operation {
	name := param("name", "path", "Name of the replay.", &huma.Schema{Type: huma.TypeString,
		Pattern: "^[a-z0-9_-]{1,57}$"})
	return []operation{
		{
			method: http.MethodGet, path: "/v1/replays", id: "list-replays", summary: "List all replays",
			action: access.ReadSinks, answer: replaysAnswer{},
			do: plain(func(ctx context.Context, c *call) (any, error) {
				list, err := deliveries.Of(c.app).Replays(ctx)
				out := replaysAnswer{make([]replayState, len(list))}
				for i := range list {
					out.Replays[i] = c.stateOf(&list[i])
				}
				return c.withUnnoted(out), err
			}),
		},
		{
			method: http.MethodGet, path: "/v1/replays/{name}", id: "show-replay", summary: "Show the progress of a replay",
			action: access.ReadSinks, answer: replayState{}, params: []*huma.Param{name}, codes: []string{"unknown_replay"},
			do: plain(func(ctx context.Context, c *call) (any, error) {
				return c.replayState(ctx, c.r.PathValue("name"))
			}),
		},
		{
			method: http.MethodPost, path: "/v1/replays/{name}", id: "start-replay", summary: "Deliver grants once more",
			description: "First send the request with the field `dry_run` as true. If the answer is 202, send the same " +
				"request again to wait for the report. After an answer 202 the replay continues in this server. If the server " +
				"stops, the replay stops. Sending the request again continues it.",
			action: access.Replay, body: replayBody{}, answer: replayAnswer{}, accepted: replayAnswer{},
			params: []*huma.Param{name},
			codes:  []string{"invalid_name", "unknown_sink", "unknown_campaign", "replay_differs", "conflict"},
			do:     startReplay,
		},
		{
			method: http.MethodPost, path: "/v1/replays/{name}/stop", id: "stop-replay", summary: "Stop a replay",
			description: "Stops the replay and its dry runs, if this server runs them. To continue the replay, start it " +
				"again with the same name.",
			action: access.Replay, body: empty{}, answer: replayState{}, params: []*huma.Param{name},
			codes: []string{"unknown_replay", "not_running_here"},
			do:    plain(stopReplay),
		},
	}
}

// taskOf returns the name of the task that runs a replay.
func taskOf(name string) string { return "replay " + name }

func (c *call) stateOf(s *deliveries.ReplayState) replayState {
	return replayState{*s, c.tasks.running(taskOf(s.Name)) != nil}
}

func errUnknownReplay() error {
	return web.Refuse("unknown_replay", "no replay with this name was started")
}

func (c *call) replayState(ctx context.Context, name string) (replayState, error) {
	if deliveries.CheckReplayName(name) != nil {
		return replayState{}, errUnknownReplay()
	}
	s, found, err := deliveries.Of(c.app).ReplayState(ctx, name)
	if x := c.tasks.running(taskOf(name)); err == nil && !found && x != nil {
		return x.unrecorded(), nil
	}
	if err == nil && !found {
		err = errUnknownReplay()
	}
	return c.stateOf(&s), err
}

// unrecorded returns the state of a replay that Redis has not recorded yet, because the replay first reads the
// topic to find missing grants.
func (x *task) unrecorded() replayState {
	o := x.replay
	return replayState{deliveries.ReplayState{Name: o.Name, Target: o.To, Dead: o.Dead, Filter: o.Filter.Hashed(), Begun: x.begun.UTC()},
		!o.DryRun}
}

// withUnnoted adds the replays that run on this server and are not recorded in Redis yet.
func (c *call) withUnnoted(list replaysAnswer) replaysAnswer {
	for _, x := range c.tasks.replays("") {
		noted := slices.ContainsFunc(list.Replays, func(s replayState) bool { return s.Name == x.replay.Name })
		if !noted && !x.replay.DryRun {
			list.Replays = append(list.Replays, x.unrecorded())
		}
	}
	slices.SortFunc(list.Replays, func(a, b replayState) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// readReplay reads the fields of a replay from the body.
func (c *call) readReplay(ctx context.Context) (o deliveries.Replay, err error) {
	f := c.fields
	in := ops.Replay{Name: c.r.PathValue("name"), To: f.text("to"), Campaign: f.text("campaign"), User: f.text("user"),
		From: f.time("from"), Until: f.time("until"), Shard: f.text("shard"),
		FirstSeq: f.number("first_seq", 1, int64(hongbao.MaxAmount)), LastSeq: f.number("last_seq", 1, int64(hongbao.MaxAmount)),
		Dead: f.text("dead"), Missing: f.flag("missing"), Rate: f.number("rate", 1, deliveries.MaxRate),
		DryRun: f.flag("dry_run"), Patience: time.Minute}
	if err := f.done(); err != nil {
		return o, err
	}
	return c.ops().ReplayOrder(ctx, in)
}

func startReplay(ctx context.Context, c *call) (any, error) {
	o, err := c.readReplay(ctx)
	if err != nil {
		return nil, err
	}
	order, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("write the order of replay %s: %w", o.Name, err)
	}
	j := job{name: taskOf(o.Name), order: string(order), replay: &o}
	if o.DryRun { // dry runs may run concurrently with the replay and with other dry runs
		sum := sha256.Sum256([]byte(c.who.Key + "\n" + j.order))
		j.name += " dry run " + hex.EncodeToString(sum[:])
	}
	j.do = func(ctx context.Context) (any, error) {
		done, err := deliveries.Of(c.app).Replay(ctx, o)
		var found app.AttentionError
		if done != nil && errors.As(err, &found) { // the report contains this result
			err = nil
		}
		return replayAnswer{Report: (*report)(done)}, err
	}
	answer, err := c.long(ctx, replayAnswer{}, &j)
	if _, goesOn := answer.(later); err != nil || !goesOn || o.DryRun {
		return answer, err
	}
	state, err := c.replayState(ctx, o.Name)
	var refused *web.Refusal
	if errors.As(err, &refused) { // the replay has just ended and delivered nothing
		return answer, nil
	}
	return later{replayAnswer{State: &state}}, err
}

// stopReplay stops the replay with a name and its dry runs, as far as they run on this server. A replay outside the
// caller's scope looks as if it did not exist.
func stopReplay(ctx context.Context, c *call) (any, error) {
	name, l := c.r.PathValue("name"), c.ops()
	stopped := slices.DeleteFunc(c.tasks.replays(name), func(x *task) bool { return !l.OwnsReplay(ctx, &x.replay.Filter) })
	if len(stopped) == 0 {
		s, err := c.replayState(ctx, name)
		switch {
		case err != nil:
		case !l.OwnsReplay(ctx, &s.Filter):
			err = errUnknownReplay()
		default:
			err = web.Refuse("not_running_here", "the replay has ended, or another server or `hongbao replay` runs it")
		}
		return nil, err
	}
	for _, x := range stopped {
		x.stop()
	}
	for _, x := range stopped {
		if _, err := x.wait(ctx, c.cfg.Patience); errors.Is(err, errStillRuns) {
			return nil, hongbao.Errorf(hongbao.ClassTransient, "replay %s is still ending", name)
		}
	}
	s, found, err := deliveries.Of(c.app).ReplayState(ctx, name)
	if err != nil || found {
		return c.stateOf(&s), err
	}
	last := stopped[0].unrecorded()
	last.RunsHere = false
	return last, nil
}
