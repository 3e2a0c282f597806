package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// The sizes of pages. Redis works on one of this size for about 0.3 ms, and answers no grab meanwhile.
const (
	scannedFields = 250
	listedPackets = 5_000
	entriesPage   = 100
	urgentPage    = 500 // of entries, for deliveries and restores
)

// scan calls fn for each field of a hash. It may call fn twice for a field. If fn fails, scan stops and returns fn's
// error unchanged.
func (k *Shard) scan(ctx context.Context, key string, fn func(field, value string) error) error {
	for cursor := uint64(0); ; {
		var pairs []string
		err := k.state.pace.page(ctx, func() (err error) {
			pairs, cursor, err = k.rdb.HScan(ctx, key, cursor, "", scannedFields).Result()
			return err
		})
		if err != nil {
			return fmt.Errorf("read %s: %w", key, Classify(err))
		}
		for i := 0; i+1 < len(pairs); i += 2 {
			if err := fn(pairs[i], pairs[i+1]); err != nil {
				return err
			}
		}
		if cursor == 0 {
			return nil
		}
	}
}

// EachReceipts calls fn with the receipts of each user of a campaign. It may call fn twice for a user. If fn fails,
// it stops and returns fn's error unchanged. If the shard does not have the campaign, it returns nil.
func (p Place) EachReceipts(ctx context.Context,
	fn func(user string, receipts []hongbao.Receipt) error) error {
	f, err := p.fields(ctx, "from")
	if err != nil || !f.Has("from") {
		return err
	}
	if err := f.Readable("from"); err != nil {
		return err
	}
	return p.EachReceiptsText(ctx, func(user, text string) error {
		list, err := ParseReceipts(p.Keys.Index(), f.From.UnixMilli(), text)
		if err != nil {
			return hongbao.Errorf(hongbao.ClassBroken, "the receipts of user %.80q in campaign %s can't be read: %w", user,
				p.Campaign, err)
		}
		return fn(user, list)
	})
}

// errFound ends the search of ReceiptOf.
var errFound = errors.New("found")

// ReceiptOf returns the receipt of a packet on the shard, and its user. It reads the receipts until it finds the packet.
func (p Place) ReceiptOf(ctx context.Context, packet int64) (user string, r hongbao.Receipt, found bool,
	err error) {
	err = p.EachReceipts(ctx, func(of string, list []hongbao.Receipt) error {
		i := slices.IndexFunc(list, func(r hongbao.Receipt) bool { return r.Packet == packet })
		if i < 0 {
			return nil
		}
		user, r = of, list[i]
		return errFound
	})
	if errors.Is(err, errFound) {
		return user, r, true, nil
	}
	return "", hongbao.Receipt{}, false, err
}

// EachReceiptsText is EachReceipts for a caller that parses the receipts itself, with ParseReceipts.
func (p Place) EachReceiptsText(ctx context.Context, fn func(user, text string) error) error {
	return p.scan(ctx, p.Keys.Receipts(p.Campaign), fn)
}

// EachCode calls fn with the code of each packet on the shard, by the text of the packet's number. It may call fn twice
// for a packet. If fn fails, it stops and returns fn's error unchanged.
func (p Place) EachCode(ctx context.Context, fn func(packet, code string) error) error {
	return p.scan(ctx, p.Keys.Codes(p.Campaign), fn)
}

// EachClaim calls fn with each claim of a sink that has not ended. If a claim can't be read, c has only its ID, and err
// says why. It may call fn twice for a claim. If fn fails, it stops and returns fn's error unchanged.
func (g Group) EachClaim(ctx context.Context, fn func(c OpenClaim, err error) error) error {
	return g.shard.scan(ctx, g.shard.Keys.Claims(g.name), func(id, text string) error {
		if id == lastFence {
			return nil
		}
		return fn(parseClaim(id, text))
	})
}

// EachLeft calls fn with the text of each packet in the stocks of the first generations, and of each withheld packet.
// The text is the packet's number and amount, with a space between them. Grabs take packets from the head of a stock, so
// EachLeft reads it from its end: the packets that it has not read keep their index. If fn fails, it stops and returns
// fn's error unchanged.
func (p Place) EachLeft(ctx context.Context, generations int64, fn func(packet string) error) error {
	var lists []string
	for g := range generations {
		lists = append(lists, p.Keys.StockOf(p.Campaign, g+1))
	}
	for _, key := range append(lists, p.Keys.Withheld(p.Campaign)) {
		for last := int64(-1); ; last -= listedPackets {
			page, err := paced(ctx, p.state.pace, func() ([]string, error) {
				return p.rdb.LRange(ctx, key, last-listedPackets+1, last).Result()
			})
			if err != nil {
				return fmt.Errorf("read %s: %w", key, Classify(err))
			}
			for _, text := range page {
				if err := fn(text); err != nil {
					return err
				}
			}
			if len(page) < listedPackets {
				break
			}
		}
	}
	return nil
}

// CampaignKeys is what the keys of a campaign have on a shard, at one instant.
type CampaignKeys struct {
	Fields   *CampaignFields // Granted and GrantedAmount are in it only after a close
	Stocked  int64           // packets in the stocks of all dealt generations, and the withheld packets
	Withheld int64
	Receipts int64 // users who have receipts
	Seq      int64 // the shard's last event
}

// CampaignKeys reads the keys of a campaign in one step. It checks none of the fields.
func (p Place) CampaignKeys(ctx context.Context) (has CampaignKeys, err error) {
	var fields *redis.MapStringStringCmd
	var seq *redis.StringCmd
	var receipts, withheld *redis.IntCmd
	var stocks []*redis.IntCmd
	for dealt := int64(1); ; {
		err = together(ctx, p.rdb, func(pipe redis.Pipeliner) {
			fields, seq = pipe.HGetAll(ctx, p.Keys.Campaign(p.Campaign)), pipe.HGet(ctx, p.Keys.Meta(), "seq")
			receipts, withheld = pipe.HLen(ctx, p.Keys.Receipts(p.Campaign)), pipe.LLen(ctx, p.Keys.Withheld(p.Campaign))
			stocks = nil
			for g := range dealt {
				stocks = append(stocks, pipe.LLen(ctx, p.Keys.StockOf(p.Campaign, g+1)))
			}
		})
		if err != nil {
			return has, fmt.Errorf("read campaign %s: %w", p.Campaign, Classify(err))
		}
		now, err := parseDigits(fields.Val()["dealt"])
		if err != nil || now <= dealt || now > MaxGenerations {
			break
		}
		dealt = now
	}
	has.Fields = parseFields(p.Campaign, fields.Val())
	has.Receipts, has.Withheld = receipts.Val(), withheld.Val()
	has.Stocked = has.Withheld
	for _, n := range stocks {
		has.Stocked += n.Val()
	}
	if has.Seq, err = seq.Int64(); err != nil {
		return has, hongbao.Errorf(hongbao.ClassBroken, "seq of shard %d: %w", p.Keys.Index(), err)
	}
	return has, nil
}
