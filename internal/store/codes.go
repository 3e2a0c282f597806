package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/hongbao-project/hongbao"
)

var codesScript = newScript("codes", "fields")

// CodesField is the field of a campaign's hash that is "1" if its packets have codes, and absent otherwise.
const CodesField = "codes"

// CodesChunk is a run of packets' codes.
type CodesChunk struct {
	Campaign string
	Hash     string // of the plan
	// First is the number of the first packet; packets are numbered from 1. Step is the difference between the
	// numbers of successive packets; 0 means 1.
	First, Step int64
	Codes       []string
}

// PutCodes stores codes of a campaign that is on this place, loading or loaded. If the place has no plan or a
// different one, PutCodes writes nothing, and Hash in the answer differs from c.Hash. Loaded in the answer is the
// number of packets that have a code. A call without codes only reads these values.
func (k *Shard) PutCodes(ctx context.Context, c *CodesChunk) (LoadState, error) {
	args := make([]any, 3, 3+len(c.Codes))
	args[0], args[1], args[2] = c.Hash, c.First, max(c.Step, 1)
	for _, code := range c.Codes {
		args = append(args, code)
	}
	keys := []string{k.Keys.Campaign(c.Campaign), k.Keys.Codes(c.Campaign)}
	reply, err := paced(ctx, k.state.pace, func() ([]string, error) { return k.run(ctx, codesScript, keys, args) })
	if err != nil {
		return LoadState{}, err
	}
	return loadState(codesScript, reply)
}

// StubHash is the field hash of a stub (lua/stub.lua), which replaces a campaign that Redis has lost. The other fields
// of a stub are made up.
const StubHash = "-"

// Terms returns a campaign's currency and whether its packets have codes. Neither ever changes. The error is
// ErrNotInRedis, of ClassPermanent, if the campaign is not there, or if only a stub is.
func (p Place) Terms(ctx context.Context) (currency string, codes bool, err error) {
	f, err := p.fields(ctx, "state", CodesField, "currency", "hash")
	if err != nil {
		return "", false, err
	}
	if f.State == "" || f.Hash == StubHash {
		return "", false, hongbao.Errorf(hongbao.ClassPermanent, "campaign %s: %w", p.Campaign, ErrNotInRedis)
	}
	return f.Currency, f.Codes, nil
}

// ErrNoCode says that a packet has no code although its campaign has codes.
var ErrNoCode = errors.New("the packet has no code")

// Codes returns the codes of packets with one HMGET. A packet without a code gets "".
func (p Place) Codes(ctx context.Context, packets []int64) ([]string, error) {
	codes := make([]string, len(packets))
	if len(packets) == 0 {
		return codes, nil
	}
	fields := make([]string, len(packets))
	for i, p := range packets {
		fields[i] = strconv.FormatInt(p, 10)
	}
	v, err := p.rdb.HMGet(ctx, p.Keys.Codes(p.Campaign), fields...).Result()
	if err != nil {
		return nil, fmt.Errorf("read %d codes of campaign %s: %w", len(packets), p.Campaign, Classify(err))
	}
	for i := range v {
		codes[i], _ = v[i].(string)
	}
	return codes, nil
}

// FillCodes puts the codes into receipts of a campaign that has codes, with a single HMGET. missing has one element
// for each list: ErrNoCode if a packet of the list has no code in Redis, else nil. An error does not affect the
// grants; a retry can return their codes.
func (p Place) FillCodes(ctx context.Context, lists ...[]hongbao.Receipt) (missing []error,
	err error) {
	var packets []int64
	for _, list := range lists {
		for i := range list {
			packets = append(packets, list[i].Packet)
		}
	}
	codes, err := p.Codes(ctx, packets)
	if err != nil {
		return nil, err
	}
	missing = make([]error, len(lists))
	for at, list := range lists {
		for i := range list {
			if list[i].Code, codes = codes[0], codes[1:]; list[i].Code == "" {
				missing[at] = hongbao.Errorf(hongbao.ClassBroken,
					"packet %d of campaign %s: %w in %s; `hongbao campaign load %s` puts it back from the ledger", list[i].Packet,
					p.Campaign, ErrNoCode, p.Keys.Codes(p.Campaign), p.Campaign)
			}
		}
	}
	return missing, nil
}
