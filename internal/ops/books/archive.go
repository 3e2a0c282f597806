package books

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/base/access"
	"github.com/hongbao-project/hongbao/internal/ledger/tables"
)

// Archived describes the archive of a campaign. The manifest beside the file has the same fields.
type Archived struct {
	Campaign string         `json:"campaign"`
	File     string         `json:"file"`
	SHA256   string         `json:"sha256"`
	Grants   int64          `json:"grants"`
	Amount   hongbao.Amount `json:"amount"`
	Currency string         `json:"currency,omitempty"`
}

// Removed is the result of `hongbao archive` for a campaign.
type Removed struct {
	Archived
	// Deleted is how many grants this call deleted from the ledger; 0 if it only wrote the file.
	Deleted int64 `json:"deleted"`
}

// archiveColumns are the columns of an archive file; docs/archive.md describes them.
var archiveColumns = []string{"packet", "user", "amount", "currency", "shard", "seq", "epoch", "request_id",
	"granted_at", "code"}

// archiveChunk is how many packets one transaction deletes.
const archiveChunk = 10_000

// archiveFile returns the name of a campaign's archive. No export has such a name, because ids and days have no dot.
func archiveFile(id string) string { return id + ".archive.csv" }

// Archive writes the grants of a sealed campaign to a file in the folder, reads the file back, and records it in the
// ledger, which keeps the grants. A repeated call writes the file again. If the ledger may have deleted grants already,
// the call only reads the recorded file back.
func (a Books) Archive(ctx context.Context, id, dir string) (Removed, error) {
	return a.recordArchive(ctx, id, func(ctx context.Context) (out Removed, err error) {
		c, err := a.app.Campaign(ctx, id)
		if err != nil {
			return out, err
		}
		out.Archived = Archived{Campaign: id, File: archiveFile(id), Grants: c.Grants, Amount: c.Granted, Currency: c.Spec.Currency}
		noted, found, err := a.app.Books().Archived(ctx, id)
		if err != nil {
			return out, err
		}
		if found {
			out.File, out.SHA256 = noted.File, noted.SHA256
			return out, a.readBack(ctx, &out.Archived, dir)
		}
		if out.SHA256, err = a.writeArchive(ctx, &out.Archived, dir); err != nil {
			return out, err
		}
		if err := a.readBack(ctx, &out.Archived, dir); err != nil {
			return out, err
		}
		return out, a.app.Books().NoteArchiveCopy(ctx, out.noted())
	})
}

// DeleteArchived reads the recorded file of a campaign back, and then deletes the campaign's grants from the ledger. If
// an earlier call was killed, it continues its work.
func (a Books) DeleteArchived(ctx context.Context, id, dir string) (Removed, error) {
	return a.recordArchive(ctx, id, func(ctx context.Context) (out Removed, err error) {
		c, err := a.app.Campaign(ctx, id)
		if err != nil {
			return out, err
		}
		noted, found, err := a.app.Books().Archived(ctx, id)
		if err == nil && !found {
			noted, found, err = a.app.Books().ArchiveCopy(ctx, id)
		}
		if err == nil && !found {
			err = app.Usage("no file has its grants yet, so nothing is deleted: write one with `hongbao archive %s --dir DIR`", id)
		}
		if err != nil {
			return out, err
		}
		out.Archived = Archived{Campaign: id, File: noted.File, SHA256: noted.SHA256, Grants: noted.Grants,
			Amount: noted.Amount, Currency: c.Spec.Currency}
		if err := a.readBack(ctx, &out.Archived, dir); err != nil {
			return out, err
		}
		if err := a.app.Books().NoteArchive(ctx, out.noted()); err != nil {
			return out, err
		}
		deleting := a.app.LongCall(ctx, "deleting the archived grants of "+id, out.Grants)
		defer deleting.End()
		out.Deleted, err = a.app.Books().DeleteArchived(ctx, id, archiveChunk, deleting.Set)
		return out, deleting.Stopped(ctx, err, "the file has all of them. Run the same command again: it continues")
	})
}

func (m *Archived) noted() tables.Archive {
	return tables.Archive{Campaign: m.Campaign, File: m.File, SHA256: m.SHA256, Grants: m.Grants, Amount: m.Amount}
}

// recordArchive runs a step of an archive and records it in the journal.
func (a Books) recordArchive(ctx context.Context, id string, step func(context.Context) (Removed, error)) (out Removed, err error) {
	err = a.app.Recorded(ctx, app.About(ctx, access.ArchiveCampaign, id), func(ctx context.Context, e *access.Entry) error {
		out, err = step(ctx)
		e.Details = map[string]any{"file": out.File, "sha256": out.SHA256, "deleted": out.Deleted}
		return err
	})
	if err != nil {
		return out, fmt.Errorf("archive campaign %s: %w", id, err)
	}
	return out, nil
}

// writeArchive writes the file and its manifest, and returns the file's SHA-256.
func (a Books) writeArchive(ctx context.Context, want *Archived, dir string) (sum string, err error) {
	t, _, err := a.app.Books().Totals(ctx, want.Campaign)
	if err == nil && !t.Sealed {
		err = app.Usage("the campaign is not sealed: once it is refunded and has left Redis, and the audit finds no difference, " +
			"`hongbao audit --seal` seals it")
	}
	if err != nil {
		return "", err
	}
	file, err := newWholeFile(dir)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.drop()) }()
	w := csv.NewWriter(file)
	if err := w.Write(archiveColumns); err != nil {
		return "", err
	}
	record := make([]string, len(archiveColumns))
	var grants int64
	var amount hongbao.Amount
	writing := a.app.LongCall(ctx, "writing the grants of "+want.Campaign, want.Grants)
	defer writing.End()
	err = a.app.Ledger().EachGrant(ctx, want.Campaign, func(g hongbao.Grant) error {
		if grants, amount = grants+1, amount+g.Amount; grants%1000 == 0 {
			writing.Set(grants)
		}
		number := func(n int64) string { return strconv.FormatInt(n, 10) }
		copy(record, []string{number(g.Packet), g.User, number(int64(g.Amount)), want.Currency, strconv.Itoa(g.Shard),
			number(g.Seq), number(g.Epoch), g.RequestID, g.Time.UTC().Format(exportTime), g.Code})
		return w.Write(record)
	})
	if err == nil {
		w.Flush()
		err = w.Error()
	}
	// This check precedes the renaming: an existing file with that name may have the only copy of the grants.
	if err == nil && (grants != want.Grants || amount != want.Amount) {
		err = hongbao.Errorf(hongbao.ClassBroken, "the ledger has %d grants with a sum of %d, but its totals say %d with %d: "+
			"no file is written; run `hongbao audit`", grants, amount, want.Grants, want.Amount)
	}
	if err != nil {
		return "", writing.Stopped(ctx, err, "no file was written. Run the same command again")
	}
	if sum, err = file.keep(want.File); err != nil {
		return "", err
	}
	manifest := *want
	manifest.SHA256 = sum
	return sum, writeManifest(&manifest, dir)
}

func writeManifest(m *Archived, dir string) (err error) {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	file, err := newWholeFile(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.drop()) }()
	if _, err := file.Write(append(text, '\n')); err != nil {
		return err
	}
	_, err = file.keep(m.Campaign + ".manifest.json")
	return err
}

// readBack reads the file and compares it with the manifest: SHA-256, number of grants, sum, and order of packets.
func (a Books) readBack(ctx context.Context, m *Archived, dir string) error {
	path := filepath.Join(dir, m.File)
	file, err := os.Open(path)
	if err != nil {
		return app.Usage("the archive file can't be read, so nothing is deleted: %w; name the folder that has the file", err)
	}
	defer file.Close()
	sum := sha256.New()
	reading := a.app.LongCall(ctx, "reading "+m.File+" back", m.Grants)
	defer reading.End()
	grants, amount, err := countArchive(io.TeeReader(file, sum), reading.Set)
	if err != nil {
		return hongbao.Errorf(hongbao.ClassBroken, "read %s back: %w; nothing is deleted", path, err)
	}
	has := hex.EncodeToString(sum.Sum(nil))
	if has != m.SHA256 || grants != m.Grants || amount != m.Amount {
		return hongbao.Errorf(hongbao.ClassBroken, "%s has %d grants with %d, SHA-256 %s: want %d with %d, %s; nothing is "+
			"deleted; put the file back as it was written", path, grants, amount, has, m.Grants, m.Amount, m.SHA256)
	}
	return nil
}

// countArchive returns the number of grants in a file, and the sum of their amounts. It calls counted again and again
// with the number so far.
func countArchive(from io.Reader, counted func(int64)) (grants int64, amount hongbao.Amount, err error) {
	r := csv.NewReader(from)
	r.FieldsPerRecord, r.ReuseRecord = len(archiveColumns), true
	if _, err := r.Read(); err != nil {
		return 0, 0, fmt.Errorf("its first line: %w", err)
	}
	for last := int64(0); ; grants++ {
		line, err := r.Read()
		if errors.Is(err, io.EOF) {
			return grants, amount, nil
		}
		if err != nil {
			return grants, amount, err
		}
		packet, err1 := strconv.ParseInt(line[0], 10, 64)
		paid, err2 := strconv.ParseInt(line[2], 10, 64)
		_, err3 := time.Parse(exportTime, line[8])
		if err := errors.Join(err1, err2, err3); err != nil {
			return grants, amount, fmt.Errorf("line %d: %w", grants+2, err)
		}
		if packet <= last {
			return grants, amount, fmt.Errorf("line %d: packet %d comes after packet %d", grants+2, packet, last)
		}
		last, amount = packet, amount+hongbao.Amount(paid)
		if grants%1000 == 0 {
			counted(grants)
		}
	}
}
