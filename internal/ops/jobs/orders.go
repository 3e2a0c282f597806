package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops"
)

// For says whose order it is: the caller, and the actor of its entries in the journal.
func (o *Order) For(who *access.Caller, as access.Actor) *Order {
	o.By, o.Actor = who.Key, as
	return o
}

// Load returns the order to load a campaign. It continues where an earlier load stopped.
func Load(do ops.Operations, id string) *Order {
	return &Order{Name: "load " + id, What: model.Say("Load of %s", id), Campaign: id, Stopper: access.LoadCampaign,
		Do: func(ctx context.Context, r *Report) error {
			loaded, err := do.LoadCampaign(ctx, id)
			if err == nil {
				r.Loaded = &loaded
			}
			return err
		}}
}

// Codes returns the order to store the codes of a coupon campaign. It continues where an earlier one stopped.
func Codes(store func(ctx context.Context, in ops.CampaignCreate) error, in *ops.CampaignCreate) *Order {
	return &Order{Name: "codes of " + in.Spec.ID, What: model.Say("Codes of %s", in.Spec.ID), Campaign: in.Spec.ID,
		Stopper: access.CreateCampaign, Do: func(ctx context.Context, _ *Report) error {
			if err := store(ctx, *in); err != nil {
				return fmt.Errorf("not all codes are stored; create the campaign again with the same text to continue: %w", err)
			}
			return nil
		}}
}

// Audit returns the order of an audit. One runs at a time in a deployment: a repeat of the request joins it.
func Audit(do ops.Operations, in ops.Audit) *Order {
	return &Order{Name: AuditName, Params: []any{in, in.Request}, What: model.Say("Audit"), Stopper: access.RunAudit,
		Do: func(ctx context.Context, r *Report) (err error) {
			r.Audit, err = do.Audit(ctx, in)
			return err
		}}
}

// Letters returns the order to decide about letters. The same decision in two windows is one job.
func Letters(a access.Action, path string, in ops.Letters, what model.Sentence,
	do func(ctx context.Context) (*model.LetterReport, error)) *Order {
	sum, _ := digest(in) // it has no field that JSON can't write
	return &Order{Name: string(a) + " " + sum, What: what, Campaign: in.Campaign, Stopper: a,
		Do: func(ctx context.Context, r *Report) (err error) {
			r.Letters, err = do(ctx)
			again := in
			switch {
			case r.Letters == nil:
			case in.DryRun && err == nil && r.Letters.Matched > 0:
				again.Expect = &r.Letters.Matched
				r.Again = &Again{Action: a, Path: path, Order: again}
			case !in.DryRun && r.Letters.Next != "":
				again.After = string(r.Letters.Next)
				r.Again = &Again{Action: a, Path: path, Order: again}
			}
			return errors.Join(err, in.Refused(r.Letters))
		}}
}

// The sentences of replays. ReplayOf reads their arguments: the name and the target.
var sayReplay, sayDryRun = model.Say("Replay %s to %s"), model.Say("Dry run: replay %s to %s")

// Replay returns the order of a replay. Dry runs may run beside the replay and beside other dry runs.
func Replay(do ops.Operations, who *access.Caller, in *ops.Replay) *Order {
	o := &Order{Name: "replay " + in.Name, Params: *in, What: sayReplay, Campaign: in.Campaign, Stopper: access.Replay,
		Do: func(ctx context.Context, r *Report) (err error) {
			r.Replay, err = do.StartReplay(ctx, *in)
			return err
		}}
	if in.DryRun {
		sum, _ := digest([]any{who.Key, *in, in.Patience}) // it has no field that JSON can't write
		o.Name, o.What = "dry run of "+o.Name+" "+sum, sayDryRun
	}
	o.What.Args = []any{in.Name, in.To}
	return o
}

// ReplayOf returns the name and the target of the replay that a job runs; false for another job.
func ReplayOf(j *model.Job) (name, to string, dry, is bool) {
	dry = j.What.Text == sayDryRun.Text
	if !dry && j.What.Text != sayReplay.Text || len(j.What.Args) < 2 {
		return "", "", false, false
	}
	return fmt.Sprint(j.What.Args[0]), fmt.Sprint(j.What.Args[1]), dry, true
}
