package audit

import (
	"context"
	"fmt"
	"hash/maphash"
	"strconv"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
)

const codePage = 2_000

// codes has a digest of each packet's code, never the code itself. The codes come from the ledger, or from Redis if
// there is no ledger.
type codes struct {
	inLedger, inRedis bool
	digests           table[uint64]
	count             int64
}

func (r *run) codeDigest(code string) uint64 {
	return max(maphash.String(r.seed, code), 1) // 0 means none
}

// readCodes compares the codes in the ledger with those in Redis. It runs before the topic is read, because
// publishedCode compares the topic's codes with these.
func (r *run) readCodes(ctx context.Context) error {
	for _, c := range r.sorted() {
		if err := r.ledgerCodes(ctx, c); err != nil {
			return err
		}
		for shard, snap := range c.on {
			if snap.loading() {
				continue
			}
			if c.codes.inLedger && !snap.codes {
				r.codeDiffers(c, 0, "Redis", "the ledger has codes of the campaign, Redis says that it has none")
			}
			if snap.codes {
				if err := r.redisCodes(ctx, c, r.shards[shard], snap); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (r *run) ledgerCodes(ctx context.Context, c *campaign) error {
	if r.Codes == nil || c.ledger == nil || !c.ledger.Codes || c.sealed {
		return nil
	}
	c.codes.inLedger = true
	for {
		page, err := r.Codes(ctx, c.id, c.codes.count, codePage)
		if err != nil {
			return err
		}
		for _, code := range page {
			c.codes.count++
			*c.codes.digests.at(c.codes.count) = r.codeDigest(code)
		}
		if len(page) < codePage {
			return nil
		}
	}
}

// redisCodes reads a campaign's codes from its shard. A campaign that leaves Redis meanwhile is not judged.
func (r *run) redisCodes(ctx context.Context, c *campaign, s *shard, snap *snapshot) error {
	found := table[uint64]{}
	err := s.Place(c.id).EachCode(ctx, func(field, code string) error {
		packet, err := strconv.ParseInt(field, 10, 64)
		if err != nil || packet < 1 || packet > snap.packets || snap.dealtTo(packet) != snap.place {
			r.codeDiffers(c, 0, "Redis", fmt.Sprintf("%s has field %.40q, which is no packet here", s.Keys.Codes(c.id), field))
			return nil //nolint:nilerr // it is a difference
		}
		*found.at(packet) = r.codeDigest(code)
		return nil
	})
	if err != nil {
		return err
	}
	if found, err := s.Place(c.id).HasCampaign(ctx); err != nil || !found {
		return err
	}
	c.codes.inRedis = true
	settled, _ := c.settled()
	for p := int64(snap.place) + 1; p <= settled; p += int64(snap.places) {
		has, want := found.at(p), c.codes.digests.at(p)
		switch {
		case *has == 0:
			r.codeDiffers(c, p, "Redis", "Redis has no code of it")
		case !c.codes.inLedger:
			*want = *has
		case *want == 0:
			r.codeDiffers(c, p, "ledger", "the ledger has no code of it, Redis has one")
		case *has != *want:
			r.codeDiffers(c, p, "Redis", "Redis has another code than the ledger")
		}
	}
	return nil
}

// publishedCode checks the code of a grant in the topic. The caller holds r.mu.
func (r *run) publishedCode(c *campaign, g *hongbao.Grant) {
	if !c.codes.inLedger && !c.codes.inRedis {
		if g.Code != "" && (c.inRedis() || c.ledger != nil && r.Codes != nil) {
			r.codeDiffers(c, g.Packet, "topic", "the topic has a code, the campaign has none")
		}
		return
	}
	want := uint64(0)
	if d := c.codes.digests.find(g.Packet); d != nil {
		want = *d
	}
	switch {
	case g.Code == "":
		r.codeDiffers(c, g.Packet, "topic", "the topic has no code")
	case want != r.codeDigest(g.Code):
		r.codeDiffers(c, g.Packet, "topic", "the topic has another code than the ledger, or than Redis if there is none")
	}
}

func (r *run) codeDiffers(c *campaign, packet int64, where, detail string) {
	r.found(model.Difference{Kind: CodeDiffers, Where: where, Campaign: c.id, Packet: packet, Detail: detail})
}
