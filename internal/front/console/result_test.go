package console

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/model"
)

// The picture of a result has the numbers of the campaign in the reader's language, and amounts only for those who may see
// them. It is XML with nothing that the policy of the console would block.
func TestPictureOfTheResult(t *testing.T) {
	t.Parallel()
	f := setup(t, nil)
	from := time.Date(2027, 2, 6, 12, 0, 0, 0, time.UTC)
	f.live = model.Live{Campaign: model.Campaign{ID: "rain", Name: `<Spring> & "rain" 春雨`, Currency: "CNY", Status: "sold_out", From: from,
		To: from.Add(time.Minute), Packets: 50_000, Dealt: 50_000, Granted: 50_000, GrantedSum: 10_000_000}, Settled: 50_000,
		Last: from.Add(34 * time.Second), Step: time.Second, Timeline: []model.Point{{At: from, Grants: 2_190}, {At: from.Add(time.Second), Grants: 1_000}},
		Answers: &model.Answers{Total: 159_340}}
	const path = "/campaigns/rain/result.svg"
	picture := func(link string) string {
		w := f.ask(t, "viewer", path, nil)
		if link != "" {
			w = f.byLink(t, link, path)
		}
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		require.Equal(t, "image/svg+xml", w.Header().Get("Content-Type"))
		for d := xml.NewDecoder(strings.NewReader(w.Body.String())); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			if x, ok := token.(xml.StartElement); ok {
				require.NotContains(t, []string{"style", "script", "foreignObject", "image"}, x.Name.Local)
				for _, a := range x.Attr {
					require.NotEqual(t, "style", a.Name.Local)
				}
			}
		}
		return w.Body.String()
	}
	f.live.Granted = 49_000 // the source adds its reads
	for _, text := range []string{">34 s<", "and all 50,000 packets were gone", "2,190 a second", "159,340", "100,000.00 CNY", "&lt;Spring&gt; &amp;"} {
		require.Contains(t, picture(""), text)
	}
	require.NotContains(t, picture(linkText+"rain"), "CNY")
	require.Contains(t, picture(linkText+"rain+money"), "100,000.00 CNY")
	require.Contains(t, f.byLink(t, linkText+"rain", "/campaigns/rain").Body.String(), `src="/campaigns/rain/result.svg"`)

	f.live.Settled, f.live.Status = 49_000, "closed"
	require.Contains(t, picture(""), "of 50,000 packets were won")
	for _, status := range []string{"open", "not_started", "paused", model.Unread, "frozen", "loading"} {
		f.live.Status = status
		require.Equal(t, http.StatusNotFound, f.ask(t, "viewer", path, nil).Code, status)
		require.NotContains(t, f.ask(t, "viewer", "/campaigns/rain", nil).Body.String(), "result.svg")
	}
	require.Equal(t, http.StatusNotFound, f.byLink(t, linkText+"rain", "/campaigns/paused/result.svg").Code)
	require.Equal(t, http.StatusNotFound, f.ask(t, "viewer:snow", path, nil).Code)
	require.Equal(t, http.StatusSeeOther, f.ask(t, "", path, nil).Code)
}

// A long text becomes smaller until it fits, in both scripts.
func TestPictureFits(t *testing.T) {
	t.Parallel()
	v := resultView{}
	require.InDelta(t, 132, v.Fit("34 s", 132, 840), 0)
	for _, text := range []string{strings.Repeat("abc ", 50), strings.Repeat("红包雨", 50)} {
		require.Less(t, v.Fit(text, 30, 880)*float64(len([]rune(text)))*0.6, 881.0)
	}
}
