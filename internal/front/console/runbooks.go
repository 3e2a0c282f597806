package console

import (
	"embed"
	"html/template"
	"net/http"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
)

// runbookFiles has docs/alarms.md and docs/zh/alarms.md as HTML: one file for each code and language, and the page above
// them as index.html.
//
//go:embed runbooks
var runbookFiles embed.FS

// runbook returns a runbook in the language, and whether it exists.
func (t *tongue) runbook(name string) (template.HTML, bool) {
	text, err := runbookFiles.ReadFile("runbooks/" + t.Tag + "/" + name + ".html")
	return template.HTML(text), err == nil //nolint:gosec // it is made of the project's own pages
}

// runbook sends a runbook, or the list of all. It needs no log-in, because nobody can log in while the ledger is down, and
// the text is public.
func (c *Console) runbook(w http.ResponseWriter, r *http.Request) {
	p := page{Title: model.Say("Runbooks"), Wide: true, Caller: c.knownCaller(r)}
	name := r.PathValue("name")
	if name == "" {
		name = "index"
	} else {
		p.Title = model.Say("What to do: %s", name)
	}
	text, ok := c.tongueOf(r).runbook(name)
	if !ok {
		c.fail(w, r, http.StatusNotFound, model.Say("There is no such runbook."))
		return
	}
	p.View = text
	c.show(w, r, http.StatusOK, "runbook", p)
}

// knownCaller returns the caller of a page that needs no log-in; nil if it is not known, or has a link.
func (c *Console) knownCaller(r *http.Request) *access.Caller {
	if who, err := c.callerOf(r); err == nil && who.Link == nil {
		return &who
	}
	return nil
}
