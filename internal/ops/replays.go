package ops

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/replay"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// Replay is the input of StartReplay, which delivers grants once more. Shard is a text because 0 is a valid
// shard.
type Replay struct {
	Name     string    `json:"-"`
	To       string    `json:"to" doc:"The target that gets the grants: 'balance', 'kafka', or topic:NAME for another topic."`
	Campaign string    `json:"campaign,omitempty" doc:"Only grants of the campaign with this id."`
	User     string    `json:"user,omitempty" doc:"Only grants to the user with this id."`
	From     time.Time `json:"from,omitzero" doc:"Only grants decided at or after this time."`
	Until    time.Time `json:"until,omitzero" doc:"Only grants decided before this time."`
	Shard    string    `json:"shard,omitempty" pattern:"^[0-9]{1,4}$" doc:"Only grants of the shard with this number."`
	FirstSeq int64     `json:"first_seq,omitempty" minimum:"1" doc:"Seq of the first event to deliver. Requires 'last_seq', and 'shard' if the deployment has several shards."`
	LastSeq  int64     `json:"last_seq,omitempty" minimum:"1" doc:"Seq of the last event to deliver. Requires 'first_seq', and 'shard' if the deployment has several shards."`
	Dead     string    `json:"dead,omitempty" doc:"Name of a sink: the replay delivers its dead letters. They remain dead letters."`
	Missing  bool      `json:"missing,omitempty" doc:"True to deliver only missing grants. For 'kafka': those that the sink has finished and the topic lacks. For 'balance': those that the ledger lacks, as after it was restored from a backup."`
	Rate     int64     `json:"rate,omitempty" minimum:"1" doc:"The most grants that the replay delivers per second. Absent: the sink's own rate limit, or no limit for another topic."`
	DryRun   bool      `json:"dry_run,omitempty" doc:"True to count the grants without delivering them."`
	// Patience is how long deliveries to a target that is down are retried.
	Patience time.Duration `json:"-"`
}

// Check returns an error if the input is invalid.
func (in *Replay) Check() error {
	topic, other := strings.CutPrefix(in.To, "topic:")
	switch {
	case hongbao.CheckCampaignID(replay.DoneSink(in.Name)) != nil:
		return &InputError{Field: "name", Code: "invalid_name", Text: "has up to 57 characters of a-z, 0-9, - and _"}
	case other && !knob.IsTopic(topic), !other && !knob.IsSink(in.To):
		return &InputError{Field: "to", Text: "is a sink, such as balance or kafka, or topic:OTHER"}
	case in.Missing && in.To != configs.SinkBalance && in.To != configs.SinkKafka:
		return &InputError{Field: "missing", Text: "works with balance and kafka only: no other sink can be read back"}
	case in.Missing && in.Dead != "":
		return &InputError{Text: "give missing or dead, not both"}
	case in.Dead != "" && in.Dead == in.To:
		return &InputError{Field: "dead", Text: fmt.Sprintf("is also the target, and the target counts these letters as finished: "+
			"use `hongbao dead requeue --sink %s`", in.Dead)}
	case in.Rate < 0 || in.Rate > deliveries.MaxRate:
		return &InputError{Field: "rate", Text: fmt.Sprintf("is from 0 to %d", deliveries.MaxRate)}
	case in.Patience < 0:
		return &InputError{Field: "patience", Text: "is 0s or more"}
	}
	return cmp.Or(in.checkRange(), checkPick(in.Campaign, in.User))
}

// checkRange returns an error if the range of times, seqs or shards is invalid.
func (in *Replay) checkRange() error {
	switch {
	case !in.From.IsZero() && !in.Until.IsZero() && !in.From.Before(in.Until):
		return &InputError{Field: "from", Text: "must be before the end"}
	case (in.FirstSeq == 0) != (in.LastSeq == 0) || in.FirstSeq < 0 || in.FirstSeq > in.LastSeq:
		return &InputError{Text: "give the first and the last seq, the first not above the last"}
	case in.shard() != nil && *in.shard() < 0:
		return &InputError{Field: "shard", Text: "is a number of 0 or more"}
	}
	return nil
}

// shard returns the shard's number, nil for all shards, or a pointer to -1 if the text is no number.
func (in *Replay) shard() *int {
	if in.Shard == "" {
		return nil
	}
	n, err := strconv.Atoi(in.Shard)
	if err != nil || strconv.Itoa(n) != in.Shard {
		n = -1
	}
	return &n
}

// Order converts the input for Deliveries.Replay.
func (in *Replay) Order() deliveries.Replay {
	return deliveries.Replay{Name: in.Name, To: in.To, Dead: in.Dead, Missing: in.Missing, DryRun: in.DryRun, Rate: float64(in.Rate),
		Patience: in.Patience, Filter: replay.Filter{Campaign: in.Campaign, User: in.User, From: in.From, To: in.Until,
			Shard: in.shard(), Seqs: stream.SeqRange{First: in.FirstSeq, Last: in.LastSeq}}}
}

// ReplayOrder checks the input and the caller's rights, and converts the input for Deliveries.Replay.
func (l *Local) ReplayOrder(ctx context.Context, in Replay) (o deliveries.Replay, err error) {
	if err := in.Check(); err != nil {
		return o, err
	}
	o = in.Order()
	shards := l.App.Config.Deployment.Shards
	switch {
	case o.Filter.Shard != nil && *o.Filter.Shard >= shards:
		return o, &InputError{Field: "shard", Text: "is one of 0 to " + strconv.Itoa(shards-1)}
	case o.Filter.Seqs.First > 0 && o.Filter.Shard == nil && shards > 1:
		return o, &InputError{Field: "shard", Text: "is required with seqs: each shard has its own seqs"}
	}
	if l.Caller != nil {
		if err := deliveries.Of(l.App).CheckListed(o.To); err != nil {
			return o, err
		}
	}
	if !strings.HasPrefix(o.To, "topic:") {
		err = l.checkSinks("to", o.To)
	}
	if o.Dead != "" {
		err = cmp.Or(err, l.checkSinks("dead", o.Dead))
	}
	if err = cmp.Or(err, l.checkAllowed(access.Replay, o.Filter.Campaign)); err != nil {
		return o, err
	}
	return o, l.checkReplayName(ctx, o.Name)
}

// OwnsReplay reports whether the caller's scope covers a replay of a campaign, or of all if the campaign is empty. If not,
// it records the attempt in the journal.
func (l *Local) OwnsReplay(ctx context.Context, campaign string) bool {
	if l.checkAllowed(access.Replay, campaign) == nil {
		return true
	}
	l.App.Denied(ctx, access.Replay, campaign, access.ErrNotInScope)
	return false
}

// checkReplayName returns an error if the name belongs to a replay outside the caller's scope. The error reveals nothing
// about that replay.
func (l *Local) checkReplayName(ctx context.Context, name string) error {
	if l.Caller == nil || !l.Caller.Scoped() {
		return nil
	}
	s, found, err := deliveries.Of(l.App).ReplayState(ctx, name)
	if err == nil && found && !l.OwnsReplay(ctx, s.Filter.Campaign) {
		return hongbao.Errorf(hongbao.ClassConflict, "%w: this name is taken: give the replay another one", replay.ErrOtherReplay)
	}
	return err
}

// StartReplay delivers grants once more. It continues where an earlier call with the same name stopped. It may
// return a report together with an error; the report says what was done.
func (l *Local) StartReplay(ctx context.Context, in Replay) (*model.ReplayReport, error) {
	o, err := l.ReplayOrder(ctx, in)
	if err != nil {
		return nil, err
	}
	return deliveries.Of(l.App).Replay(ctx, o)
}

// StartReplay implements Operations. The server continues the replay after ctx has ended.
func (r *Remote) StartReplay(ctx context.Context, in Replay) (*model.ReplayReport, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	var out struct{ Report *model.ReplayReport }
	if err := r.postAll(ctx, "/v1/replays/"+in.Name, &in, &out); err != nil {
		return nil, err
	}
	if out.Report == nil {
		return nil, hongbao.Errorf(hongbao.ClassPermanent, "the server's answer contains no report of replay %s", in.Name)
	}
	return out.Report, deliveries.CheckReplayed(out.Report)
}
