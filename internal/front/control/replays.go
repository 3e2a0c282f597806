package control

import (
	"context"
	"errors"
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
	"github.com/hongbao-project/hongbao/internal/ops/jobs"
)

type replaysAnswer struct {
	Replays []replayState `json:"replays" nullable:"false" doc:"The replays, in the order of their names."`
}

// replayState is the progress of a replay, on whichever server or command it runs.
type replayState struct {
	deliveries.ReplayState
	Running bool `json:"running" doc:"True if a server of the deployment runs the replay now. If false, a hongbao replay command may run it."`
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
				return c.replayStates(ctx, list), err
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
			description: "Stops the replay and its dry runs, on whichever servers they run. To continue the replay, start it " +
				"again with the same name.",
			action: access.Replay, body: empty{}, answer: replayState{}, params: []*huma.Param{name},
			codes: []string{"unknown_replay", "not_running"},
			do:    plain(stopReplay),
		},
	}
}

func errUnknownReplay() error {
	return web.Refuse("unknown_replay", "no replay with this name was started")
}

// running returns the jobs that run a replay on any server, with its dry runs if dry is set. The name "" stands for all
// replays. If the ledger can't be read, running returns those of this server.
func (c *call) running(ctx context.Context, name string, dry bool) []jobs.Job {
	all, _ := c.jobs.List(ctx)
	return slices.DeleteFunc(all, func(j jobs.Job) bool {
		runs, _, isDry, is := jobs.ReplayOf(&j.Job)
		return !is || !j.Running() || name != "" && runs != name || isDry && !dry
	})
}

func (c *call) replayState(ctx context.Context, name string) (replayState, error) {
	if deliveries.CheckReplayName(name) != nil {
		return replayState{}, errUnknownReplay()
	}
	s, found, err := deliveries.Of(c.app).ReplayState(ctx, name)
	if err != nil {
		return replayState{}, err
	}
	runs := c.running(ctx, name, false)
	switch {
	case found:
		return replayState{s, len(runs) > 0}, nil
	case len(runs) > 0:
		return unrecorded(&runs[0]), nil
	}
	return replayState{}, errUnknownReplay()
}

// unrecorded returns the state of a replay that Redis has not recorded yet, because the replay first reads the topic to
// find missing grants.
func unrecorded(j *jobs.Job) replayState {
	name, to, dry, _ := jobs.ReplayOf(&j.Job)
	s := replayState{deliveries.ReplayState{Name: name, Target: to, Begun: j.Began}, !dry}
	s.Filter.Campaign = j.Campaign
	return s
}

// replayStates returns the states of all replays: the recorded ones, and those that run and are not recorded yet.
func (c *call) replayStates(ctx context.Context, recorded []deliveries.ReplayState) replaysAnswer {
	runs := map[string]*jobs.Job{}
	for _, j := range c.running(ctx, "", false) {
		name, _, _, _ := jobs.ReplayOf(&j.Job)
		runs[name] = &j
	}
	out := replaysAnswer{make([]replayState, len(recorded))}
	for i := range recorded {
		out.Replays[i] = replayState{recorded[i], runs[recorded[i].Name] != nil}
		delete(runs, recorded[i].Name)
	}
	for _, j := range runs {
		out.Replays = append(out.Replays, unrecorded(j))
	}
	slices.SortFunc(out.Replays, func(a, b replayState) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// readReplay reads the fields of a replay from the body, and checks them.
func (c *call) readReplay(ctx context.Context) (in ops.Replay, err error) {
	f := c.fields
	in = ops.Replay{Name: c.r.PathValue("name"), To: f.text("to"), Campaign: f.text("campaign"), User: f.text("user"),
		From: f.time("from"), Until: f.time("until"), Shard: f.text("shard"),
		FirstSeq: f.number("first_seq", 1, int64(hongbao.MaxAmount)), LastSeq: f.number("last_seq", 1, int64(hongbao.MaxAmount)),
		Dead: f.text("dead"), Missing: f.flag("missing"), Rate: f.number("rate", 1, deliveries.MaxRate),
		DryRun: f.flag("dry_run"), Patience: time.Minute}
	if err := f.done(); err != nil {
		return in, err
	}
	_, err = c.ops().ReplayOrder(ctx, in)
	return in, err
}

func startReplay(ctx context.Context, c *call) (any, error) {
	in, err := c.readReplay(ctx)
	if err != nil {
		return nil, err
	}
	answer, err := c.long(ctx, always(replayAnswer{}), jobs.Replay(c.ops(), &c.who, &in),
		func(r *jobs.Report) any { return replayAnswer{Report: (*report)(r.Replay)} })
	var found app.AttentionError
	if done, ok := answer.(replayAnswer); ok && done.Report != nil && errors.As(err, &found) { // the report contains this result
		err = nil
	}
	if _, goesOn := answer.(later); err != nil || !goesOn || in.DryRun {
		return answer, err
	}
	state, err := c.replayState(ctx, in.Name)
	var refused *web.Refusal
	if errors.As(err, &refused) { // the replay has just ended and delivered nothing
		return answer, nil
	}
	return later{replayAnswer{State: &state}}, err
}

// stopReplay stops the replay with a name and its dry runs, on whichever servers they run. A replay outside the caller's
// scope looks as if it did not exist.
func stopReplay(ctx context.Context, c *call) (any, error) {
	name, l := c.r.PathValue("name"), c.ops()
	runs := slices.DeleteFunc(c.running(ctx, name, true), func(j jobs.Job) bool { return !l.OwnsReplay(ctx, j.Campaign) })
	if len(runs) == 0 {
		s, err := c.replayState(ctx, name)
		switch {
		case err != nil:
		case !l.OwnsReplay(ctx, s.Filter.Campaign):
			err = errUnknownReplay()
		default:
			err = web.Refuse("not_running", "the replay has ended, or `hongbao replay` runs it")
		}
		return nil, err
	}
	until := time.Now().Add(c.cfg.Patience)
	for _, wait := range []bool{false, true} { // first all of them are asked
		for i := range runs {
			most := time.Duration(0)
			if wait {
				most = time.Until(until)
			}
			switch err := c.jobs.Stop(ctx, runs[i].ID, c.who.Key, most); {
			case errors.Is(err, jobs.ErrRuns) && wait:
				return nil, hongbao.Errorf(hongbao.ClassTransient, "replay %s is still ending", name)
			case err != nil && !errors.Is(err, jobs.ErrRuns):
				return nil, err
			}
		}
	}
	s, found, err := deliveries.Of(c.app).ReplayState(ctx, name)
	if err != nil || found {
		return replayState{s, false}, err
	}
	last := unrecorded(&runs[0])
	last.Running = false
	return last, nil
}
