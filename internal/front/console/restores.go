package console

import (
	"net/http"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
)

// restoresPage is the data of the page of restores. Withheld are the packets about which a person can decide; if Unread
// is set, they could not be read.
type restoresPage struct {
	titles
	List     []model.Restored
	Withheld []model.Withheld
	Packets  int64
	Unread   model.Sentence
}

// restores shows the restores of data that Redis had lost, and the packets that they withheld.
func (c *Console) restores(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	list, err := c.source.Restored(r.Context())
	if err != nil {
		c.failed(w, r, err)
		return
	}
	p := restoresPage{List: list}
	if p.Withheld, err = c.source.Withheld(r.Context()); err != nil {
		p.Unread = model.Because(err, "The withheld packets could not be read.")
	}
	var ids []string
	for _, x := range p.Withheld {
		ids, p.Packets = append(ids, x.Campaign), p.Packets+x.Packets
	}
	p.titles = c.titlesOf(r.Context(), ids...)
	c.show(w, r, http.StatusOK, "restores", page{Title: model.Say("Restores"), Caller: who, View: &p,
		Meta: model.Say("What Redis lost, and what workers put back.")})
}
