package store_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/campaign"
	"github.com/hongbao-project/hongbao/internal/store"
	"github.com/hongbao-project/hongbao/internal/store/load"
)

// grabModel is a simple implementation of one place of a campaign. The answers of grab.lua must equal the model's.
type grabModel struct {
	spec       hongbao.Campaign
	zone       []load.Transition
	state      string
	places     int
	newest     int64            // the newest announced generation
	dealt      int64            // the newest complete generation
	coming     []hongbao.Amount // amounts of the newest generation that are not loaded yet
	numbered   int64            // number of the last loaded packet
	loaded     int64
	loadedSum  hongbao.Amount
	stock      map[int64][]hongbao.Receipt // by generation; only Packet and Amount are set
	receipts   map[string][]hongbao.Receipt
	counters   map[string]map[string]int64 // hash -> field
	granted    int64
	amount     hongbao.Amount
	seq        int64
	finished   int64
	maxBacklog int64
	frozen     bool
	events     []hongbao.Grant
}

func newModel(c hongbao.Campaign, plan *campaign.Plan) (*grabModel, error) {
	zone, err := load.Transitions(c)
	if err != nil {
		return nil, err
	}
	m := &grabModel{
		spec: c, zone: zone, state: store.StateOpen, maxBacklog: 1e6, places: 1, newest: 1,
		stock: map[int64][]hongbao.Receipt{}, receipts: map[string][]hongbao.Receipt{},
		counters: map[string]map[string]int64{},
	}
	m.coming = plan.Amounts
	m.deal(len(m.coming), 1)
	return m, nil
}

// deal adds the next packets of the newest generation; successive numbers differ by step.
func (m *grabModel) deal(n int, step int64) {
	for _, a := range m.coming[:n] {
		m.numbered += step
		m.stock[m.newest] = append(m.stock[m.newest], hongbao.Receipt{Packet: m.numbered, Amount: a})
		m.loaded++
		m.loadedSum += a
	}
	if m.coming = m.coming[n:]; len(m.coming) == 0 {
		m.dealt = m.newest
	}
}

// grab decides one grab. It checks receipts, window, limits, stock and backlog, in the order of docs/design/grab.md.
// held has the times of the user's packets on other places.
func (m *grabModel) grab(g *hongbao.Grab, generation int64, held []time.Time, now time.Time) hongbao.Answer {
	if m.frozen {
		return hongbao.Answer{Outcome: hongbao.OutcomeFrozen, Time: now}
	}
	mine := m.receipts[g.User]
	for _, r := range mine {
		if g.RequestID != "" && r.RequestID == g.RequestID {
			return hongbao.Answer{Outcome: hongbao.OutcomeGranted, Receipts: []hongbao.Receipt{r}, Time: now}
		}
	}
	refusal := m.refusal(now)
	if refusal.Outcome != "" && len(mine) == 0 {
		return refusal
	}
	if refusal.Outcome != "" || m.spec.UserHold() == 1 && len(mine)+len(held) > 0 {
		return hongbao.Answer{Outcome: hongbao.OutcomeAlreadyGranted, Receipts: mine, Time: now}
	}
	if hit := m.limit(g, held, now); hit != nil {
		return hongbao.Answer{Outcome: hongbao.OutcomeLimitReached, Limit: hit, Time: now}
	}
	switch {
	case generation > m.dealt:
		return hongbao.Answer{Outcome: hongbao.OutcomeRefilling, Time: now}
	case len(m.stock[generation]) == 0 && (m.places > 1 || m.newest > 1):
		return hongbao.Answer{Outcome: hongbao.OutcomeSoldOut, Receipts: mine, Time: now}
	case len(m.stock[generation]) == 0:
		return hongbao.Answer{Outcome: hongbao.OutcomeSoldOut, Time: now}
	}
	if m.seq-m.finished >= m.maxBacklog {
		return hongbao.Answer{Outcome: hongbao.OutcomeBusy, Time: now}
	}
	return m.grant(g, generation, now)
}

// refusal returns the refusal that a user without packets gets because of the campaign's state or window. The outcome
// is empty if neither refuses.
func (m *grabModel) refusal(now time.Time) hongbao.Answer {
	switch {
	case m.state == store.StatePaused && now.Before(m.spec.To):
		return hongbao.Answer{Outcome: hongbao.OutcomePaused, Time: now}
	case now.Before(m.spec.From):
		return hongbao.Answer{Outcome: hongbao.OutcomeNotStarted, Starts: m.spec.From, Time: now}
	case !now.Before(m.spec.To):
		return hongbao.Answer{Outcome: hongbao.OutcomeEnded, Time: now}
	}
	return hongbao.Answer{}
}

func (m *grabModel) grant(g *hongbao.Grab, generation int64, now time.Time) hongbao.Answer {
	r := m.stock[generation][0]
	m.stock[generation] = m.stock[generation][1:]
	m.seq++
	r.Seq, r.Time, r.RequestID = m.seq, now, g.RequestID
	m.receipts[g.User] = append(m.receipts[g.User], r)
	for _, l := range m.spec.Limits {
		if l.By != hongbao.ByUser {
			hash, field := m.counter(l, g, now)
			if m.counters[hash] == nil {
				m.counters[hash] = map[string]int64{}
			}
			m.counters[hash][field]++
		}
	}
	m.granted++
	m.amount += r.Amount
	m.events = append(m.events, hongbao.Grant{
		Seq: r.Seq, Epoch: 1, Campaign: m.spec.ID, Packet: r.Packet, Amount: r.Amount, User: g.User,
		RequestID: g.RequestID, Trace: g.Trace, Time: now.UTC(),
	})
	return hongbao.Answer{Outcome: hongbao.OutcomeGranted, Receipts: []hongbao.Receipt{r}, Time: now}
}

// limit returns the first limit that the user has reached. Limits by user come before limits by facts. Their periods
// come in the order campaign, day, hour.
func (m *grabModel) limit(g *hongbao.Grab, held []time.Time, now time.Time) *hongbao.LimitHit {
	for _, per := range []hongbao.Period{hongbao.PerCampaign, hongbao.PerDay, hongbao.PerHour} {
		for _, l := range m.spec.Limits {
			if l.By != hongbao.ByUser || l.Per != per {
				continue
			}
			bucket, _ := load.Bucket(m.zone, per, now.UnixMilli())
			var count int64
			for _, r := range m.receipts[g.User] {
				if b, _ := load.Bucket(m.zone, per, r.Time.UnixMilli()); b == bucket {
					count++
				}
			}
			for _, at := range held {
				if b, _ := load.Bucket(m.zone, per, at.UnixMilli()); b == bucket {
					count++
				}
			}
			if count >= l.Max {
				return m.hit(l, now)
			}
		}
	}
	for _, l := range m.spec.Limits {
		if l.By == hongbao.ByUser {
			continue
		}
		if hash, field := m.counter(l, g, now); m.counters[hash][field] >= l.Max {
			return m.hit(l, now)
		}
	}
	return nil
}

func (m *grabModel) hit(l hongbao.Limit, now time.Time) *hongbao.LimitHit {
	hit := &hongbao.LimitHit{Limit: l}
	if _, resets := load.Bucket(m.zone, l.Per, now.UnixMilli()); resets != 0 {
		hit.Resets = time.UnixMilli(resets)
	}
	return hit
}

// counter returns where a fact's value is counted: the hash is "<c, d or h><bucket>", the field "<position of the
// fact>:<value>".
func (m *grabModel) counter(l hongbao.Limit, g *hongbao.Grab, now time.Time) (hash, field string) {
	position := 0
	for i, name := range m.factNames() {
		if name == l.By {
			position = i + 1
		}
	}
	bucket := ""
	if b, _ := load.Bucket(m.zone, l.Per, now.UnixMilli()); l.Per != hongbao.PerCampaign {
		bucket = fmt.Sprint(b)
	}
	return fmt.Sprintf("%.1s%s", l.Per, bucket), fmt.Sprintf("%d:%s", position, g.Facts[l.By])
}

func (m *grabModel) factNames() []string {
	var names []string
	for _, l := range m.spec.Limits {
		if l.By != hongbao.ByUser && !strings.Contains(","+strings.Join(names, ",")+",", ","+l.By+",") {
			names = append(names, l.By)
		}
	}
	return names
}

// stored returns a user's receipts in the format of Redis.
func (m *grabModel) stored(user string) string {
	var parts []string
	for _, r := range m.receipts[user] {
		parts = append(parts, fmt.Sprintf("%d %d %d %d %s", r.Packet, r.Amount, r.Seq,
			r.Time.UnixMilli()-m.spec.From.UnixMilli(), r.RequestID))
	}
	return strings.Join(parts, "\n")
}
