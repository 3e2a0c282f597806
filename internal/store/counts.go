package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/hongbao-project/hongbao"
)

// CampaignFields returns the campaign's hash; Exists says whether the shard has the campaign. If the hash
// lacks granted and granted_amount, CampaignFields computes them. They are exact: the stock is read in the same
// transaction as the hash.
func (p Place) CampaignFields(ctx context.Context) (*CampaignFields, error) {
	for {
		generations, err := p.generations(ctx)
		if err != nil {
			return nil, err
		}
		f, holders, stocks, err := p.readStocks(ctx, generations)
		if err != nil {
			return nil, err
		}
		if !f.Exists() || f.Has(grantedField) {
			return f, nil
		}
		if f.Has("generation") && f.Generation != generations {
			continue // a top-up was announced between the two reads
		}
		if err := f.Readable(withheldField); err != nil {
			return nil, err
		}
		left, amount := f.Withheld.Packets, f.Withheld.Amount
		for i := range stocks {
			n, sum, err := stocks[i].left()
			if err != nil {
				return nil, hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis, %s: %w", p.Campaign,
					p.Keys.LoadedTotals(p.Campaign, int64(i+1)), err)
			}
			left, amount = left+n, amount+sum
		}
		if f.Need("loaded", "loaded_amount") != nil {
			return f, nil //nolint:nilerr // the caller that needs these fields reports the error
		}
		f.Granted, f.GrantedAmount = f.Loaded-left, f.LoadedAmount-amount
		f.has[grantedField], f.has[grantedAmountField] = nil, nil
		return f, p.checkHolders(f, holders)
	}
}

// checkHolders compares the granted packets with the number of users who have receipts, as lua/close.lua does. It
// does not check a frozen campaign, whose data may be incomplete.
func (k *Shard) checkHolders(f *CampaignFields, holders int64) error {
	if f.Need("user_campaign") != nil || f.Readable("above_limit") != nil || f.State == StateFrozen ||
		f.Granted >= holders && f.Granted <= holders*f.PerUser+f.AboveLimit {
		return nil //nolint:nilerr // the caller that needs these fields reports the error
	}
	return hongbao.Errorf(hongbao.ClassBroken, "campaign %s in Redis: the stock lacks %d packets, and %d users have "+
		"receipts, at most %d each and %d above that limit; someone wrote to %s or %s by hand: `hongbao audit` names the packets",
		f.campaign, f.Granted, holders, f.PerUser, f.AboveLimit, k.Keys.Stock(f.campaign), k.Keys.Receipts(f.campaign))
}

// stockRead has the replies about the stock of one generation: its length, its first packets, and its sums.
type stockRead struct {
	length *redis.IntCmd
	head   *redis.StringSliceCmd
	sums   *redis.StringSliceCmd
}

// readStocks reads a campaign's hash, the number of users who have receipts, and the stocks, in one transaction.
func (p Place) readStocks(ctx context.Context, generations int64) (*CampaignFields, int64, []stockRead, error) {
	var fields *redis.MapStringStringCmd
	var holders *redis.IntCmd
	var stocks []stockRead
	err := together(ctx, p.rdb, func(pipe redis.Pipeliner) {
		fields, holders = pipe.HGetAll(ctx, p.Keys.Campaign(p.Campaign)), pipe.HLen(ctx, p.Keys.Receipts(p.Campaign))
		stocks = nil
		for g := int64(1); g <= generations; g++ {
			stock := p.Keys.StockOf(p.Campaign, g)
			stocks = append(stocks, stockRead{pipe.LLen(ctx, stock), pipe.LRange(ctx, stock, 0, MaxChunk-1),
				pipe.LRange(ctx, p.Keys.LoadedTotals(p.Campaign, g), 0, -1)})
		}
	})
	if err != nil {
		return nil, 0, nil, fmt.Errorf("read campaign %s: %w", p.Campaign, Classify(err))
	}
	return parseFields(p.Campaign, fields.Val()), holders.Val(), stocks, nil
}

// left returns the number of packets in a stock and their sum, in the same way as lua/left.lua. It does not call the
// script, because the role hongbao-reader (deploy/rights) may not run scripts.
func (s *stockRead) left() (int64, hongbao.Amount, error) {
	left := s.length.Val()
	if left == 0 {
		return 0, 0, nil
	}
	marks := s.sums.Val()
	if len(marks) == 0 {
		return 0, 0, fmt.Errorf("the stock has %d packets, and there are no sums", left)
	}
	packets, amount, err := twoNumbers(marks[len(marks)-1])
	if err != nil {
		return 0, 0, err
	}
	granted := packets - left
	if granted < 0 {
		return 0, 0, fmt.Errorf("the stock has %d packets, and the sums count %d", left, packets)
	}
	for _, mark := range marks {
		n, sum, err := twoNumbers(mark)
		if err != nil {
			return 0, 0, err
		}
		if n < granted {
			continue
		}
		head := s.head.Val()
		if n-granted > int64(len(head)) {
			return 0, 0, fmt.Errorf("two successive sums are more than %d packets apart", MaxChunk)
		}
		sum = amount - sum
		for _, packet := range head[:n-granted] {
			_, value, err := twoNumbers(packet)
			if err != nil {
				return 0, 0, err
			}
			sum += value
		}
		return left, hongbao.Amount(sum), nil
	}
	return 0, 0, fmt.Errorf("the sums end at %q", marks[len(marks)-1]) // not reached: the last sum includes all packets
}

// twoNumbers parses two numbers with a space between them, such as a packet's number and amount.
func twoNumbers(text string) (int64, int64, error) {
	a, b, _ := strings.Cut(text, " ")
	first, err1 := parseDigits(a)
	second, err2 := parseDigits(b)
	if err1 != nil || err2 != nil {
		return 0, 0, fmt.Errorf("%.60q is not two numbers", text)
	}
	return first, second, nil
}
