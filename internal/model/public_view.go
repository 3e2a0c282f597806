package model

import "time"

// PublicView is the public part of a campaign.
type PublicView struct {
	State, Name, Kind, Currency string
	From, To                    time.Time
	// SoldOut means that every packet of the place is granted, and no top-up is announced that is not dealt.
	SoldOut bool
	// Lost means that Redis has lost some of the campaign's data: the campaign is frozen or was ended from the
	// ledger. A user without a receipt in Redis may still have a packet.
	Lost bool
	// Now is the time of Redis. Grabs are decided by this clock.
	Now time.Time
}

// Status returns the outcome for a grab of a user without packets, or "open". The checks are in the order of
// lua/grab.lua.
func (w *PublicView) Status() string {
	switch ended := !w.Now.Before(w.To); {
	case w.State == "frozen":
		return "frozen"
	case w.State == "paused" && !ended:
		return "paused"
	case w.State == "closed", w.State == "refunded":
		return "ended"
	case w.State == "loading", w.Now.Before(w.From):
		return "not_started"
	case ended:
		return "ended"
	case w.SoldOut:
		return "sold_out"
	}
	return "open"
}
