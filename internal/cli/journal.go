package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ops"
)

func journalCmd() *cobra.Command {
	var (
		q     access.JournalQuery
		since string
	)
	cmd := &cobra.Command{
		Use: "journal", Short: "List who did what, the newest first",
		Long: "Lists the actions on the deployment, by commands and over HTTP: the actor, the action, the campaign\n" +
			"or sink, and the outcome. It also lists the actions that callers were denied. Each page ends with\n" +
			"the value of --after for the next page.",
		Example: "  hongbao journal\n" +
			"  hongbao journal --campaign spring-rain --since 2026-02-17T20:00:00Z --json\n" +
			"  hongbao journal --who key:5xk2q7vmaz3t --limit 20",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if q.Since, err = parseTime("--since", since); err != nil {
				return err
			}
			if err := ops.CheckJournal(&q); err != nil {
				return flagged(cmd, err)
			}
			return operate(cmd, app.Needs{Ledger: true}, func(o ops.Operations) error {
				page, err := o.ListJournal(cmd.Context(), q)
				if err != nil {
					return err
				}
				return printAnswer(cmd, page, func(w io.Writer) error { return writeJournal(w, &page) })
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Campaign, "campaign", "", "only entries about the campaign with this id")
	flags.StringVar(&q.Who, "who", "", "only entries of this person or API key, such as cli:ann@host or key:5xk2q7vmaz3t")
	flags.StringVar(&since, "since", "", "only entries at or after this time, such as 2026-02-17T20:00:00Z")
	flags.StringVar(&q.After, "after", "", "continue after the previous page: the value of --after that it printed")
	flags.IntVarP(&q.Limit, "limit", "n", 100, "the most entries on a page")
	return cmd
}

func writeJournal(w io.Writer, p *access.JournalPage) error {
	t := newColumns(w)
	fmt.Fprintln(t, "TIME\tWHO\tACTION\tABOUT\tOUTCOME\tDETAILS")
	for i := range p.Entries {
		e := &p.Entries[i]
		details := ""
		if len(e.Details) > 0 {
			text, err := json.Marshal(e.Details)
			if err != nil {
				return err
			}
			details = string(text)
		}
		about := strings.TrimSpace(e.Campaign + " " + e.Sink)
		if about == "" {
			about = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", e.Time.Format(time.RFC3339Nano), e.Who, e.Action, about, e.Outcome, details)
	}
	if err := t.Flush(); err != nil || p.Next == "" {
		return err
	}
	_, err := fmt.Fprintf(w, "more: --after %s\n", p.Next)
	return err
}
