package books

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/configs"
)

// The clocks jump from midnight to 01:00. Each exported day still begins exactly where the day before ends.
func TestExportedDayWhereTheClockJumpsAtMidnight(t *testing.T) {
	t.Parallel()
	a := &app.App{Config: &configs.Config{}}
	for _, c := range []struct{ zone, day, from, to string }{
		{"America/Santiago", "2024-09-07", "2024-09-07T00:00:00-04:00", "2024-09-08T01:00:00-03:00"},
		{"America/Santiago", "2024-09-08", "2024-09-08T01:00:00-03:00", "2024-09-09T00:00:00-03:00"},
		{"America/Santiago", "2024-04-06", "2024-04-06T00:00:00-03:00", "2024-04-07T00:00:00-04:00"},
		{"America/Havana", "2024-03-10", "2024-03-10T01:00:00-04:00", "2024-03-11T00:00:00-04:00"},
		{"Asia/Beirut", "2024-03-31", "2024-03-31T01:00:00+03:00", "2024-04-01T00:00:00+03:00"},
		{"Asia/Shanghai", "2024-02-29", "2024-02-29T00:00:00+08:00", "2024-03-01T00:00:00+08:00"},
	} {
		date, err := time.Parse(time.DateOnly, c.day)
		require.NoError(t, err)
		day, err := Of(a).dayOf(&hongbao.Campaign{ID: "rain", TimeZone: c.zone}, &Export{Day: date})
		require.NoError(t, err)
		require.Equal(t, []string{c.from, c.to}, []string{day.From.Format(time.RFC3339), day.To.Format(time.RFC3339)},
			"%s %s", c.zone, c.day)
	}
}

// An archive and an export in one folder never have the same name, whatever the campaigns are called.
func TestArchiveAndExportHaveOtherNames(t *testing.T) {
	t.Parallel()
	for _, finished := range []bool{true, false} {
		for _, id := range []string{"rain", "rain-2026-02-18"} {
			day := &Exported{Day: "2026-02-18", Finished: finished}
			for _, other := range []string{"rain", "rain-2026-02-18", "rain-2026-02-18-2026-02-18"} {
				require.NotEqual(t, exportFile(id, day), archiveFile(other))
			}
		}
	}
}
