package producer

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// clientNeeds has the client options that a Producer depends on, each with the text of the error. Retries of the
// client are allowed: it sends no grab twice.
var clientNeeds = struct{ ContextTimeoutEnabled, ReadOnly, RouteByLatency, RouteRandomly string }{
	ContextTimeoutEnabled: "ContextTimeoutEnabled must be true: otherwise CallTimeout does not end a call that waits " +
		"for an answer",
	ReadOnly:       "ReadOnly must be false: a replica may lack the latest campaigns and receipts",
	RouteByLatency: "RouteByLatency must be false: it reads from replicas",
	RouteRandomly:  "RouteRandomly must be false: it reads from replicas",
}

// checkClient returns an error for each wrong option of a client.
func checkClient(rdb redis.UniversalClient) (errs []error) {
	need := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New("Redis: "+text))
		}
	}
	switch c := rdb.(type) {
	case *redis.Client:
		need(c.Options().ContextTimeoutEnabled, clientNeeds.ContextTimeoutEnabled)
	case *redis.ClusterClient:
		o := c.Options()
		need(o.ContextTimeoutEnabled, clientNeeds.ContextTimeoutEnabled)
		need(!o.ReadOnly, clientNeeds.ReadOnly)
		need(!o.RouteByLatency, clientNeeds.RouteByLatency)
		need(!o.RouteRandomly, clientNeeds.RouteRandomly)
	default:
		errs = append(errs, fmt.Errorf(
			"Redis is a %T, whose options can't be read: want a *redis.Client or a *redis.ClusterClient", rdb))
	}
	return errs
}
