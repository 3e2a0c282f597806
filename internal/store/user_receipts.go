package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// UserReceipts has a user's receipts in a campaign on one place. Class and Open tell whether the user may see them yet.
type UserReceipts struct {
	Place    Place
	Receipts []hongbao.Receipt // without codes
	Currency string
	State    string // the campaign's state on the place
	Codes    bool   // whether the packets have codes
	Class    hongbao.Durability
	// Open is ErrFrozen if the shard is frozen, else nil. On a frozen shard the receipts may be out of date, and so
	// may the error that comes with them.
	Open error

	fields *CampaignFields
	epoch  int64     // of the shard
	at     time.Time // of the read, by Redis' clock
}

// Report remembers receipts that the caller is about to return to their user, as Grab does with those of its answers:
// if Redis loses them, a recoverer asks this process. Report returns an error if a recoverer may already have opened
// the shard without them. The caller then reads them again.
func (h *UserReceipts) Report(ctx context.Context, user string) error {
	call := &GrabCall{Currency: h.Currency, Grabs: []*hongbao.Grab{{User: user}}}
	return h.Place.answer(ctx, call, []hongbao.Answer{{Time: h.at, Receipts: h.Receipts}}, h.epoch)
}

// UserReceipts returns a user's receipts on one place. The error is ErrNotInRedis, of ClassPermanent, if the place does
// not have the campaign. The error also wraps ErrLost if the user has no receipt, but Redis has lost some of the
// campaign's data. The caller then finds the receipts in the ledger.
func (p Place) UserReceipts(ctx context.Context, user string) (UserReceipts, error) {
	node, err := p.Node(ctx)
	if err != nil {
		return UserReceipts{Place: p}, err
	}
	list, errs := receiptsOn(ctx, node, []Place{p}, user)
	return list[0], errs[0]
}

// UserReceipts returns a user's receipts in the campaign, one element for each place in order. If a place fails,
// UserReceipts returns an error, because the receipts of the other places are incomplete, and list has the results so
// far.
func (c Campaign) UserReceipts(ctx context.Context, user string) (list []UserReceipts, err error) {
	home, err := c.Home().UserReceipts(ctx, user)
	list = []UserReceipts{home}
	if err != nil {
		return list, err
	}
	places, err := c.placesIn(home.fields)
	if err != nil || len(places) == 1 {
		return list, err
	}
	others, errs := c.receiptsOver(ctx, places[1:], user)
	for i := range errs {
		if errs[i] != nil {
			errs[i] = onPlace(others[i].Place, len(places), errs[i])
		}
	}
	return append(list, others...), errors.Join(errs...)
}

// receiptsOver reads from all places: in one transaction on a single server, else with concurrent calls.
func (c Campaign) receiptsOver(ctx context.Context, places []Place, user string) ([]UserReceipts, []error) {
	if _, cluster := c.store.rdb.(*redis.ClusterClient); !cluster {
		return receiptsOn(ctx, c.store.rdb, places, user)
	}
	return Ask(len(places), AllAtOnce, func(i int) (UserReceipts, error) { return places[i].UserReceipts(ctx, user) })
}

// receiptsOn reads from places on one server in one transaction, because the campaign may be purged between two reads.
// node is the client of that server. The client of the shards stays in use for their state, which is per process and
// not per node.
func receiptsOn(ctx context.Context, node redis.UniversalClient, places []Place, user string) ([]UserReceipts, []error) {
	list, errs := make([]UserReceipts, len(places)), make([]error, len(places))
	reads := make([]func() (UserReceipts, error), len(places))
	_ = together(ctx, node, func(pipe redis.Pipeliner) { // each command has its own error
		server := pipe.Info(ctx, "server", "replication")
		for i, p := range places {
			reads[i] = p.askReceipts(ctx, pipe, server, user)
		}
	})
	for i, read := range reads {
		list[i], errs[i] = read()
	}
	return list, errs
}

// askReceipts queues the reads of a user's receipts in a pipeline. The function that it returns parses the replies.
// server is an INFO command that the caller has queued before.
func (p Place) askReceipts(ctx context.Context, pipe redis.Pipeliner, server *redis.StringCmd,
	user string) func() (UserReceipts, error) {
	open, epoch := p.askOpenOn(ctx, pipe, server), pipe.HGet(ctx, p.Keys.Meta(), epochField)
	text := pipe.HGet(ctx, p.Keys.Receipts(p.Campaign), user)
	fields := p.Keys.askFields(ctx, pipe, p.Campaign, "from", LostField, "state", CodesField, "currency", "durability",
		placesField)
	return func() (UserReceipts, error) {
		h := UserReceipts{Place: p}
		f, err := fields()
		if err == nil {
			err = Classify(cmp.Or(server.Err(), text.Err()))
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			return h, fmt.Errorf("read the receipts of user %s in campaign %s: %w", user, p.Campaign, err)
		}
		h.Open, h.at = open(), serverTime(server.Val())
		h.epoch, _ = epoch.Int64() // absent if the shard is not open
		return p.parseReceipts(&h, f, text.Val())
	}
}

// serverTime returns the clock of a server from its answer to INFO. It returns the zero time if the answer lacks it.
func serverTime(info string) time.Time {
	_, rest, _ := strings.Cut(info, "\nserver_time_usec:")
	text, _, _ := strings.Cut(rest, "\r\n")
	us, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMicro(us)
}

func (k *Shard) parseReceipts(h *UserReceipts, f *CampaignFields, receipts string) (UserReceipts, error) {
	h.State, h.Codes, h.Currency, h.Class = f.State, f.Codes, f.Currency, f.Durability
	h.fields = f
	switch lost := f.Lost || f.State == StateFrozen; {
	case !f.Has("from"):
		return *h, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w", f.campaign, ErrNotInRedis)
	case receipts == "" && lost:
		return *h, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w: %w", f.campaign, ErrNotInRedis, ErrLost)
	}
	err := f.Readable("from")
	if err == nil {
		h.Receipts, err = ParseReceipts(k.Keys.Index(), f.From.UnixMilli(), receipts)
	}
	return *h, err
}

// ReceiptsOf returns the receipts of all places, ordered by time.
func ReceiptsOf(list []UserReceipts) (all []hongbao.Receipt) {
	for i := range list {
		all = append(all, list[i].Receipts...)
	}
	if len(list) > 1 {
		slices.SortStableFunc(all, func(a, b hongbao.Receipt) int { return a.Time.Compare(b.Time) })
	}
	return all
}
