package console

import (
	"time"

	"github.com/hongbao-project/hongbao/internal/base/access"
	streams "github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
)

// phase judges a campaign without a fault: where it is in its life.
func phase(f *facts) judgement {
	end := func(code string, level level, say model.Sentence, title, text, label model.Sentence, action access.Action) judgement {
		return judgement{Code: code, Level: level, Say: say, Next: step{Title: title, Text: []model.Sentence{text}, Action: action,
			Path: "/campaigns/" + f.ID + "/end", Label: label}}
	}
	if f.Adding() > 0 {
		return judgement{Code: "refilling", Level: levelInfo, Say: model.Say("%d packets are being added. A grab that finds none gets “try again”.", f.Adding()),
			Next: step{Runbook: "top_up_waits", Title: model.Say("Wait"), Text: []model.Sentence{model.Say("If it does not end, repeat the top-up with the same number: it goes on where it stopped.")}}}
	}
	switch f.Status {
	case "created", "loading":
		j := judgement{Code: "before", Level: levelWait, Say: model.Say("Not loaded yet: without a load nobody can grab at %s.", f.at(f.From)),
			Next: step{Title: model.Say("Load the campaign"), Text: []model.Sentence{
				model.Say("Puts the packets into Redis; users can grab from %s. After that a cancel is no longer possible, only a close.", f.at(f.From))},
				Action: access.LoadCampaign, Path: "/campaigns/" + f.ID + "/load", Post: true, Label: model.Say("Load %d packets", f.Dealt)}}
		if f.Status == "loading" {
			j.Say = model.Say("The load has begun and is not finished: nobody can grab yet.")
		}
		return j
	case "not_started":
		j := judgement{Code: "ready", Level: levelOK, Say: model.Say("%d packets are loaded.", f.Dealt),
			Next: step{Title: model.Say("Publish the plan hash"), Text: []model.Sentence{
				model.Say("Put it where your users can read it, before %s. It proves later that nobody changed an amount.", f.at(f.From))}}}
		switch s := f.sink(configs.SinkBalance); {
		case s != nil && s.State == deliveries.SinkNoWorker:
			j.Level, j.More = levelWait, []model.Sentence{model.Say("No worker runs for payments: start one before the window opens.")}
			j.Next.Runbook = "no_worker"
		case s == nil || s.State != deliveries.SinkWorking:
			j.Level, j.More = levelCalm, []model.Sentence{model.Say("Whether a worker runs for payments could not be read: see Deliveries.")}
		}
		return j
	case "paused":
		return pausedPhase(f)
	case "open":
		return flow(f, "raining", step{Title: model.Say("Nothing to do"), Text: []model.Sentence{
			model.Say("When the last packet is gone or the window is over, close the campaign. To stop users from winning before that, pause it.")}})
	case "sold_out":
		return flow(f, "sold_out", step{Title: model.Say("Close the campaign"), Text: []model.Sentence{
			model.Say("Users without a packet then get “ended”, and no packets can be added. Then the refund follows.")},
			Action: access.CloseCampaign, Path: "/campaigns/" + f.ID + "/end", Label: model.Say("End of the campaign")})
	case "ended":
		j := flow(f, "window_over", step{Title: model.Say("Close the campaign"), Text: []model.Sentence{
			model.Say("Nobody has been able to grab since %s, and nothing closes by itself. After the close you refund what is left.", f.at(f.To))},
			Action: access.CloseCampaign, Path: "/campaigns/" + f.ID + "/end", Label: model.Say("End of the campaign")})
		if f.Left > 0 {
			j.More = append([]model.Sentence{j.Say}, j.More...)
			j.Level, j.Say = levelWait, model.Say("The window is over with %d packets left. Their money stays reserved until the refund.", f.Left)
		}
		return j
	case "closed":
		return end("to_refund", levelInfo, model.Say("Closed. What is left is not refunded yet."), model.Say("Refund"),
			model.Say("Returns to the sponsor what nobody got. The page shows the amount first."), model.Say("End of the campaign"), access.Refund)
	case "refunded":
		if f.Revealed {
			return judgement{Code: "complete", Level: levelOK, Say: model.Say("Refunded, and the seed is public: everyone can check the draw."),
				Next: step{Title: model.Say("Nothing to do")}}
		}
		return end("to_reveal", levelInfo, model.Say("Refunded. The seed is not public yet."), model.Say("Reveal the seed"),
			model.Say("Then everyone can recompute every amount and compare it with the plan hash."), model.Say("End of the campaign"), access.RevealCampaign)
	}
	return judgement{Code: f.Status, Level: levelCalm, Say: model.Say("This page does not know this state.")}
}

func pausedPhase(f *facts) judgement {
	j := judgement{Code: "paused", Level: levelWait, Say: model.Say("Paused: nobody wins, and users get “paused”."),
		More: []model.Sentence{model.Say("The window does not move.")},
		Next: step{Title: model.Say("Resume"), Text: []model.Sentence{
			model.Say("Users can win again at once. %d packets are left, and the window ends at %s all the same.", f.Left, f.at(f.To))},
			Action: access.ResumeCampaign, Path: "/campaigns/" + f.ID + "/resume", Post: true, Label: model.Say("Resume the campaign")}}
	if p := f.Paused; p != nil && p.By == streams.ByWorker {
		j.Next.Runbook = "campaign_paused"
	}
	if p := f.Paused; p != nil && p.Why != "" {
		j.Say = model.Say("Paused by %s at %s: “%s”. Nobody wins, and users get “paused”.", p.By, f.at(p.At), p.Why)
	} else if p != nil {
		j.Say = model.Say("Paused by %s at %s. Nobody wins, and users get “paused”.", p.By, f.at(p.At))
	}
	return j
}

// onTheWay returns how many grants of the campaign wait for other sinks than the ledger, and how long the oldest one on its
// shards has waited.
func (f *facts) onTheWay() (others int64, oldest time.Duration) {
	for _, lag := range f.Lags {
		if lag.Sink != configs.SinkBalance {
			others += f.Waiting(lag)
		}
		oldest = max(oldest, lag.Oldest)
	}
	return others, oldest
}

// flow judges how fast winners get their money, and others the news. It is green only if all of that was read.
func flow(f *facts, code string, next step) judgement {
	j := judgement{Code: code, Level: levelOK, Next: next}
	pay, known := f.lag(configs.SinkBalance)
	others, slow := f.onTheWay()
	switch {
	case !known || f.sinks == nil || len(f.Lags) < len(f.sinks):
		j.Level, j.Say = levelCalm, model.Say("How far the deliveries are is not known.")
	case f.Granted == 0 && f.Status == "open":
		j.Say = model.Say("Users can grab. Nobody has won yet.")
	case f.Granted == 0:
		j.Level, j.Say = levelCalm, model.Say("Nobody won a packet.")
	case f.Unpaid() == 0 && pay.Grants == 0 && others == 0:
		j.Say = f.each(model.Say("All %d winners are paid, and nothing waits for another sink.", f.Granted),
			model.Say("All %d winners are in the ledger, and nothing waits for another sink.", f.Granted))
	case f.Unpaid() > 0 && pay.Grants == 0: // a rain may show it for a moment: the ledger is read before Redis
		j.Next.Runbook = "dead_letter"
		j.Level, j.Say = levelWait, model.Say("%d winners are not in the ledger, and nothing is on the way to it: perhaps dead letters or "+
			"the quarantine have them.", f.Unpaid())
	case slow <= waits && len(f.Lags) == 1:
		j.Say = f.each(model.Say("Winners are paid within a second."), model.Say("Winners are in the ledger within a second."))
	case slow <= waits:
		j.Say = f.each(model.Say("Winners are paid and announced within a second."),
			model.Say("Winners are in the ledger and announced within a second."))
	default:
		j.Level, j.Say = levelInfo, model.Say("What is on the way takes longer than a second: the oldest %s.", slow)
	}
	j.More = f.besides(pay.Grants > 0, others, slow)
	return j
}

// besides returns sentences about what is on the way, and what the last audit found.
func (f *facts) besides(pays bool, others int64, oldest time.Duration) (more []model.Sentence) {
	if pays && f.Unpaid() > 0 || others > 0 {
		more = append(more, model.Say("On the way now: %d grants to the ledger, and %d to other sinks, the oldest %s.", f.Unpaid(), others, oldest))
	}
	if a := f.Audit; a.Agrees && !a.At.IsZero() && f.Status != "open" {
		more = append(more, model.Say("The audit at %s found no difference.", f.at(a.At)))
	}
	return more
}
