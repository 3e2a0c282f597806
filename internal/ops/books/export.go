package books

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/money"
	"github.com/hongbao-project/hongbao/internal/ledger"
	"github.com/hongbao-project/hongbao/internal/ledger/books"
	"github.com/hongbao-project/hongbao/internal/sinks/remote"
)

// Export selects the movements of one day that are written to files, for reconciliation with a bank or a balance
// system.
type Export struct {
	// Day is a date in each campaign's time zone.
	Day time.Time
	// Campaign selects one campaign. If it is empty, every campaign with movements on that day is written.
	Campaign string
	// Dir is the folder for the files.
	Dir string
	// Unfinished allows a day that is not over or not settled.
	Unfinished bool
	// Exact writes accounts as the ledger has them, also those that a spreadsheet would take for a formula.
	Exact bool
}

// Exported describes the file for one day of a campaign. Amounts are in minor units.
type Exported struct {
	Campaign string    `json:"campaign"`
	Day      string    `json:"day"`
	TimeZone string    `json:"time_zone"`
	From     time.Time `json:"from"`
	To       time.Time `json:"to"`
	File     string    `json:"file"`
	SHA256   string    `json:"sha256"`
	Lines    int64     `json:"lines"`
	Currency string    `json:"currency,omitempty"`
	books.DaySums
	// Finished means that the file of this day never changes again: the day is over, and all credits that the remote may
	// have booked before its end are recorded.
	Finished bool `json:"finished"`
}

// exportColumns are the columns of a file; docs/reconciliation.md describes them.
var exportColumns = []string{"booked_at", "type", "reference", "account", "currency", "amount", "campaign", "packet",
	"granted_at", "transfer"}

// accountColumn is the place of the account in exportColumns. It is the only column whose text people choose freely.
const accountColumn = 3

// safe returns a text that no spreadsheet takes for a formula: with a ' in front, if it begins with a character that
// begins a formula, or with a '. So the text without its first ' is the account again.
func safe(text string) string {
	if text != "" && strings.ContainsRune("=+-@'", rune(text[0])) {
		return "'" + text
	}
	return text
}

const (
	exportTime = "2006-01-02T15:04:05.000Z07:00"
	// exportAfter is how long after its end a day may still get lines. Clocks of workers differ, and transactions that
	// began before the end may still commit. The ledger's time limit for transactions is added to it.
	exportAfter = 5 * time.Minute
)

// Export writes the movements of each campaign on a day to one file. A file is written completely or not at all, and a
// repeat writes the same file. The error names each campaign without a file. Unless the error is an outage, the files
// of all other campaigns are written.
func (a Books) Export(ctx context.Context, e Export) ([]Exported, error) {
	campaigns, err := a.toExport(ctx, e.Campaign)
	if err != nil {
		return nil, err
	}
	if err := checkDir(e.Dir); err != nil {
		return nil, err
	}
	files := []Exported{}
	var failed, late error // of campaigns that can't be exported, and of those whose day may get more lines
	exporting := a.app.LongCall(ctx, "exporting campaigns", int64(len(campaigns)))
	defer exporting.End()
	for i := range campaigns {
		exporting.Set(int64(i))
		c := &campaigns[i].Spec
		day, err := a.dayOf(c, &e)
		if err == nil {
			err = a.exportDay(ctx, &e, c, &day)
		}
		if err != nil {
			err = fmt.Errorf("export %s of campaign %s: %w", day.Day, day.Campaign, err)
		}
		switch {
		case err == nil && day.File != "":
			files = append(files, day)
		case err == nil:
		case hongbao.IsOutage(err) || ctx.Err() != nil: // the other campaigns would also fail
			err = exporting.Stopped(ctx, err, "each file that is there is complete: run the same command again")
			return files, errors.Join(failed, err, late)
		case hongbao.ClassOf(err) == hongbao.ClassTransient:
			late = errors.Join(late, err)
		default:
			failed = errors.Join(failed, err)
		}
	}
	return files, errors.Join(failed, late)
}

func (a Books) toExport(ctx context.Context, id string) (list []ledger.StoredCampaign, err error) {
	if id != "" {
		c, err := a.app.Campaign(ctx, id)
		return []ledger.StoredCampaign{c}, err
	}
	for c, err := range a.app.Ledger().EachCampaign(ctx, "") {
		if err != nil {
			return list, err
		}
		list = append(list, *c)
	}
	return list, nil
}

// dayOf returns the begin and the end of a campaign's day. It returns an error if the day may still get lines.
func (a Books) dayOf(c *hongbao.Campaign, e *Export) (Exported, error) {
	out := Exported{Campaign: c.ID, Day: e.Day.Format(time.DateOnly), TimeZone: c.TimeZone, Currency: c.Currency}
	zone, err := time.LoadLocation(c.TimeZone)
	if err != nil {
		return out, hongbao.Errorf(hongbao.ClassBroken, "the time zone of campaign %s: %w", c.ID, err)
	}
	out.From, out.To = begin(e.Day, zone), begin(e.Day.AddDate(0, 0, 1), zone)
	open := out.To.Add(exportAfter + a.app.Config.Ledger.Timeout)
	out.Finished = !time.Now().Before(open)
	if !out.Finished && !e.Unfinished {
		return out, hongbao.Errorf(hongbao.ClassTransient, "the day (%s) may get more lines until %s: run the command again "+
			"then, or write the lines so far with --unfinished", c.TimeZone, open.Format(time.RFC3339))
	}
	return out, nil
}

// begin returns the first moment of a date in a time zone. That is midnight, or later if the clocks are moved forward
// at midnight.
func begin(date time.Time, zone *time.Location) time.Time {
	year, month, day := date.Date()
	t := time.Date(year, month, day, 0, 0, 0, 0, zone)
	if t.Day() != day {
		_, t = t.ZoneBounds()
	}
	return t
}

// exportDay writes the file of one campaign. It writes no file if there are no movements and the request does not name
// the campaign.
func (a Books) exportDay(ctx context.Context, e *Export, c *hongbao.Campaign, day *Exported) (err error) {
	file, err := newWholeFile(e.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.drop()) }()
	w := csv.NewWriter(file)
	record := slices.Clone(exportColumns)
	if !e.Exact {
		record[accountColumn] += "_safe"
	}
	if err := w.Write(record); err != nil {
		return err
	}
	span := books.Day{Campaign: c.ID, From: day.From, To: day.To}
	day.DaySums, err = a.app.Books().Day(ctx, span, func(l *books.Line) error {
		day.Lines++
		a.exportLine(record, c, day.From.Location(), l)
		if !e.Exact {
			record[accountColumn] = safe(record[accountColumn])
		}
		return w.Write(record)
	})
	if err == nil {
		w.Flush()
		err = w.Error()
	}
	if err != nil {
		return err
	}
	if day.Unrecorded > 0 && !e.Unfinished {
		return hongbao.Errorf(hongbao.ClassTransient, "%d credits may have been booked at the remote before the day's end, "+
			"and are not recorded yet: `hongbao work` records them; run the command again then, or write the lines so far with "+
			"--unfinished",
			day.Unrecorded)
	}
	day.Finished = day.Finished && day.Unrecorded == 0
	if day.Lines == 0 && e.Campaign == "" {
		return nil
	}
	name := exportFile(c.ID, day)
	day.SHA256, err = file.keep(name)
	day.File = filepath.Join(e.Dir, name)
	return err
}

// exportFile returns the name of a day's file.
func exportFile(id string, day *Exported) string {
	if day.Finished {
		return id + "-" + day.Day + ".csv"
	}
	return id + "-" + day.Day + ".unfinished.csv"
}

// exportLine fills a record, in the order of exportColumns.
func (a Books) exportLine(record []string, c *hongbao.Campaign, zone *time.Location, l *books.Line) {
	reference, account, packet, granted := l.Transfer, l.User, "", ""
	switch l.Kind {
	case books.LineGrant:
		reference = remote.Key(a.app.Config.Deployment.ID, c.ID, l.Packet)
		granted = l.Granted.In(zone).Format(exportTime)
	case books.LineFunding, books.LineRefund:
		account = c.Sponsor
	case books.LinePayment:
	}
	if l.Packet > 0 {
		packet = strconv.FormatInt(l.Packet, 10)
	}
	amount := money.Number(l.Amount, c.Currency)
	copy(record, []string{l.Booked.In(zone).Format(exportTime), string(l.Kind), reference, account, c.Currency, amount,
		c.ID, packet, granted, l.Transfer})
}
