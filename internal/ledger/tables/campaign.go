package tables

import (
	"errors"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/payment"
	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// ErrNoCampaign says that the ledger does not have the campaign.
var ErrNoCampaign = errors.New("the campaign is not in the ledger")

// ErrArchived says that a campaign's grants are in a file, and no longer in the ledger. Errors that wrap it are
// Permanent.
var ErrArchived = errors.New("the campaign is archived")

// Archive says where the grants of an archived campaign are.
type Archive struct {
	Campaign string
	// File is the file's name. SHA256 is the hash of its content, in hex.
	File, SHA256 string
	Grants       int64
	Amount       hongbao.Amount
	Archived     time.Time
	// Deleted is when the last grant was deleted from the ledger. It is zero while the ledger may still have some of the
	// grants.
	Deleted time.Time
}

// ArchiveColumns are the columns that ScanArchive scans.
const ArchiveColumns = `campaign, file, sha256, grants, amount, archived_at, deleted_at`

// ScanArchive scans a row of table archive.
func ScanArchive(s db.Scan) (a Archive, err error) {
	var archived, deleted int64
	err = s(&a.Campaign, &a.File, &a.SHA256, &a.Grants, &a.Amount, &archived, &deleted)
	a.Archived, a.Deleted = At(archived), At(deleted)
	return a, err
}

// ArchiveOf selects the archive of a campaign.
func ArchiveOf(campaign string) Query[Archive] {
	return Query[Archive]{"ask whether campaign " + campaign + " is archived",
		`SELECT ` + ArchiveColumns + ` FROM archive WHERE campaign = $1`, []any{campaign}, ScanArchive}
}

// Refusal returns the error of a read of the campaign's grants; it wraps ErrArchived.
func (a *Archive) Refusal() error {
	return hongbao.Errorf(hongbao.ClassPermanent, "%w: since %s the grants of campaign %s are in the file %s "+
		"(SHA-256 %s), and not in the ledger; read them from that file", ErrArchived, a.Archived.Format(time.RFC3339), a.Campaign, a.File,
		a.SHA256)
}

// PlaceClose is a row of table refund_close, which has the closes of all places but the first.
type PlaceClose struct {
	Campaign string
	payment.Close
}

// PlaceCloses selects the closes that fulfill a condition.
func PlaceCloses(what, where string, args ...any) Query[PlaceClose] {
	return Query[PlaceClose]{what, `SELECT campaign, shard, close_seq FROM refund_close WHERE ` + where, args,
		func(s db.Scan) (r PlaceClose, err error) {
			var shard int64
			err = s(&r.Campaign, &shard, &r.Seq)
			r.Shard = int(shard)
			return r, err
		}}
}
