package app

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/shards"
)

// currency is that of a campaign in Redis; empty if the campaign is not there. An answer is not held back because
// nobody can tell its currency: its amounts are then whole minor units.
func (a *App) currency(ctx context.Context, id string) string {
	currency, _, err := shards.Of(a.redis, a.space.Home(id)).Terms(ctx, id)
	if err != nil && !errors.Is(err, shards.ErrNotInRedis) {
		a.log.Warn("the currency of the campaign can't be read, so amounts are in minor units", zap.String("campaign", id),
			zap.Error(err))
	}
	return currency
}

// ledgerCurrency is what the ledger says of a campaign's currency.
func (a *App) ledgerCurrency(ctx context.Context, id string) string {
	c, _, err := a.ledger.Campaign(ctx, id)
	if err != nil {
		a.log.Warn("the currency of the campaign can't be read, so amounts are in minor units", zap.String("campaign", id),
			zap.Error(err))
	}
	return c.Spec.Currency
}

// currencies asks for the currency of each campaign once.
type currencies struct {
	ask   func(ctx context.Context, campaign string) string
	known map[string]string
}

func newCurrencies(ask func(context.Context, string) string) *currencies {
	return &currencies{ask, map[string]string{}}
}

func (c *currencies) of(ctx context.Context, campaign string) string {
	currency, ok := c.known[campaign]
	if !ok {
		currency = c.ask(ctx, campaign)
		c.known[campaign] = currency
	}
	return currency
}

// complete adds the currency to a grant that came from the stream, which does not carry it; nil is none.
func (c *currencies) complete(ctx context.Context, g *hongbao.Grant) {
	if g != nil {
		g.Currency = c.of(ctx, g.Campaign)
	}
}
