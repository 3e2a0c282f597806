package console

import (
	"context"
	"net/http"
	"slices"
	"unicode"

	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/model"
)

// resultView is the data of the picture of a campaign's result.
type resultView struct{ *campaignView }

// resultStates are the states in which a campaign has a result: nobody wins any more.
var resultStates = []string{"sold_out", "ended", "closed", "refunded"}

// Over reports whether nobody can win a packet of the campaign any more, so that its page has the picture of the result.
func (v *campaignView) Over() bool { return slices.Contains(resultStates, v.Status) && v.Dealt > 0 }

// result sends the picture of a campaign's result, as SVG.
func (c *Console) result(w http.ResponseWriter, r *http.Request, who *access.Caller) {
	ctx, cancel := context.WithTimeout(r.Context(), loadTime)
	defer cancel()
	seen, err := c.resultOf(ctx, r.PathValue("id"), who)
	if err != nil {
		c.failed(w, r, err)
		return
	}
	if seen == nil {
		c.fail(w, r, http.StatusNotFound, model.Say("There is no result yet: users can still win, or what they won could not be read."))
		return
	}
	text, err := c.tongueOf(r).render("result.svg", page{View: resultView{seen}})
	if err != nil {
		c.failed(w, r, err)
		return
	}
	if who.Link != nil {
		w.Header().Set("Referrer-Policy", "no-referrer")
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	_, _ = w.Write([]byte(text)) // an error means that the caller has closed the connection
}

// resultOf returns the page of a campaign that is over, as the caller may see it; nil if it is not over.
func (c *Console) resultOf(ctx context.Context, id string, who *access.Caller) (*campaignView, error) {
	v, ok := c.viewOf(ctx, "/campaigns/"+id, who)
	if !ok {
		return nil, model.ErrNotFound
	}
	data, err := v.load(ctx)
	if err != nil {
		return nil, err
	}
	now := reading{data: data}
	if x, ok := data.(*watched); ok {
		now.rates = ratesOf(x.Live, x.read)
	}
	if seen, ok := v.filter(&now, who).(*campaignView); ok && seen.Over() {
		return seen, nil
	}
	return nil, nil
}

// Fit returns the largest size of a font, up to most, with which a text is about as wide as wide.
func (resultView) Fit(text string, most, wide float64) float64 {
	var ems float64
	for _, r := range text {
		if unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana) || r > 0xffff {
			ems++
		} else {
			ems += 0.6
		}
	}
	return min(most, wide/max(ems, 1))
}
