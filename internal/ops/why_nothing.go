package ops

import (
	"fmt"
	"strings"

	"github.com/hongbao-project/hongbao/internal/base/plural"
)

// nothing says why a user has no grant.
func (e explainer) nothing(user string) string {
	if e.Kept != "" {
		return fmt.Sprintf("The grants of %s are archived: the file %s says what %s won.", e.Campaign, e.Kept, user)
	}
	var silent []string
	for where, name := range map[string]string{inRedis: "Redis", inLedger: "the ledger"} {
		if _, unread := e.unreadWhy(where); unread {
			silent = append(silent, name)
		}
	}
	switch len(silent) {
	case 1:
		other := strings.NewReplacer("Redis", "the ledger", "the ledger", "Redis").Replace(silent[0])
		return fmt.Sprintf("It is not known whether %s won in %s: %s could not be asked, and %s has no grant.", user,
			e.Campaign, silent[0], other)
	case 2:
		return fmt.Sprintf("It is not known whether %s won in %s: neither Redis nor the ledger could be asked.", user,
			e.Campaign)
	}
	text := fmt.Sprintf("%s has won nothing in %s: %s", user, e.Campaign, e.because())
	if e.Withheld > 0 {
		text += fmt.Sprintf("; %s %s withheld, because an unknown user may have won before Redis lost the record "+
			"(hongbao hole list %s)", plural.Of(e.Withheld, "packet"), plural.Verb(e.Withheld, "is", "are"), e.Campaign)
	}
	return text + "."
}

// noRecord is why no one can say what an earlier grab of the user got.
const noRecord = "and a refused grab leaves no record"

// because says what the campaign's state means for a user without a grant.
func (e explainer) because() string {
	from, to := "at a time that is not known", "at a time that is not known"
	if e.Terms != nil {
		from, to = "at "+e.day(e.Terms.From), "at "+e.day(e.Terms.To)
	}
	switch e.State {
	case "created":
		return "the campaign is not loaded, so no one can win yet"
	case "loading":
		return "the campaign is being loaded, so no one can win yet"
	case "not_started":
		return "the campaign opens " + from
	case "open":
		return "the campaign is open and ends " + to + ", " + noRecord
	case "paused":
		return "the campaign is paused (" + strings.TrimSuffix(e.Note, ".") + "), " + noRecord
	case "sold_out":
		return "all packets are gone, " + noRecord
	case "ended", "closed":
		return "the campaign ended " + to + ", " + noRecord
	case "refunded":
		return "the campaign is over and its sponsor got back what no one won, " + noRecord
	}
	return "the campaign is " + e.State + " (" + e.Note + ")"
}
