package tables

import (
	"strconv"

	"github.com/hongbao-project/hongbao"
)

// UserAccount is the id of a user's account in a currency. It exists from the first credit on.
func UserAccount(user, currency string) string { return "user:" + currency + ":" + user }

// PoolAccount is the id of the account with the money that a campaign was funded with and has not paid out yet.
func PoolAccount(campaign string) string { return "pool:" + campaign }

// SponsorAccount is the id of a sponsor's account in a currency. Its money comes from outside the ledger, so its
// balance is minus what it has funded.
func SponsorAccount(sponsor, currency string) string { return "sponsor:" + currency + ":" + sponsor }

// ReserveAccount is the id of the account in a currency that pays quarantined grants which an operator decided to pay.
// Its money comes from outside the ledger, so its balance is minus what it has paid.
func ReserveAccount(currency string) string { return "reserve:" + currency }

// ReserveTransfers begins the id of each transfer that pays a grant from the reserve.
const ReserveTransfers = "quarantine:"

// ReserveTransfer returns the id of the transfer that pays a grant from the reserve.
func ReserveTransfer(g *hongbao.Grant) string {
	return ReserveTransfers + g.Campaign + ":" + strconv.FormatInt(g.Packet, 10) + ":" + g.User
}
