package ops

import (
	"strings"

	"github.com/hongbao-project/hongbao/internal/model"
)

// nothing says why a user has no grant.
func (e explainer) nothing(user string) model.Sentence {
	if e.Kept != "" {
		return model.Say("The grants of %s are archived: the file %s says what %s won.", e.Campaign, string(e.Kept), user)
	}
	_, redis := e.unreadWhy(inRedis)
	_, ledger := e.unreadWhy(inLedger)
	switch {
	case redis && ledger:
		return model.Say("It is not known whether %s won in %s: neither Redis nor the ledger could be asked.", user, e.Campaign)
	case redis:
		return model.Say("It is not known whether %s won in %s: Redis could not be asked, and the ledger has no grant.", user, e.Campaign)
	case ledger:
		return model.Say("It is not known whether %s won in %s: the ledger could not be asked, and Redis has no grant.", user, e.Campaign)
	case e.Withheld == 1:
		return model.Say("%s has won nothing in %s: %s; 1 packet is withheld, because an unknown user may have won before Redis lost the record (%s).",
			user, e.Campaign, e.because(), "hongbao hole list "+e.Campaign)
	case e.Withheld > 1:
		return model.Say("%s has won nothing in %s: %s; %d packets are withheld, because an unknown user may have won before Redis lost the record (%s).",
			user, e.Campaign, e.because(), e.Withheld, "hongbao hole list "+e.Campaign)
	}
	return model.Say("%s has won nothing in %s: %s.", user, e.Campaign, e.because())
}

// because says what the campaign's state means for a user without a grant. A refused grab leaves no record, so no one can
// say what an earlier grab of the user got.
func (e explainer) because() model.Sentence {
	from, to := model.Say("at a time that is not known"), model.Say("at a time that is not known")
	if e.Terms != nil {
		from, to = model.Say("at %s", e.day(e.Terms.From)), model.Say("at %s", e.day(e.Terms.To))
	}
	switch e.State {
	case "created":
		return model.Say("the campaign is not loaded, so no one can win yet")
	case "loading":
		return model.Say("the campaign is being loaded, so no one can win yet")
	case "not_started":
		return model.Say("the campaign opens %s", from)
	case "open":
		return model.Say("the campaign is open and ends %s, and a refused grab leaves no record", to)
	case "paused":
		return model.Say("the campaign is paused (%s), and a refused grab leaves no record", strings.TrimSuffix(e.Note, "."))
	case "sold_out":
		return model.Say("all packets are gone, and a refused grab leaves no record")
	case "ended", "closed":
		return model.Say("the campaign ended %s, and a refused grab leaves no record", to)
	case "refunded":
		return model.Say("the campaign is over and its sponsor got back what no one won, and a refused grab leaves no record")
	}
	return model.Say("the campaign is %s (%s)", e.State, e.Note)
}
