package audit

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/model"
)

// topicFacts has what the audit knows about the topic's partitions.
type topicFacts struct {
	// begin has the bases where this audit begins to read; nil if it reads the whole topic.
	begin []model.TopicBase
	next  []int64
	// last has the last grant of each partition.
	last map[int]*topicRecord
	// late are the records of sealed campaigns that were published after the last judged ones.
	late []*topicRecord
}

type topicRecord struct {
	c     *campaign
	grant hongbao.Grant
	at    record
}

func (r *run) readTopic(ctx context.Context) error {
	if r.Topic == nil {
		return nil
	}
	if !r.partial() && !r.opts.Full {
		r.topic.begin = r.Bases
	}
	scan, err := r.Topic.Each(ctx, r.topic.begin, func(partition int, offset int64, g hongbao.Grant) error {
		r.observeAt(inTopic, &g, &record{partition, offset})
		return nil
	})
	if err != nil {
		return err
	}
	r.topic.next = scan.Next
	r.report.Total.Foreign = scan.Foreign
	for i, s := range r.shards {
		if n := len(scan.Since); n > 0 && !scan.Since[i%n].IsZero() { // shard i is in partition i mod n
			s.whole = scan.Since[i%n].Unix()
		}
	}
	if scan.Malformed > 0 {
		r.found(model.Difference{Kind: MalformedRecord, Where: "topic",
			Detail: fmt.Sprintf("%d records; the first one: %v", scan.Malformed, scan.FirstMalformed)})
	}
	r.judgeLate()
	return nil
}

// noteRecord notes a record for the next base, and whether it is a late one.
func (r *run) noteRecord(c *campaign, g *hongbao.Grant, at *record) {
	if first, found := c.first[at.partition]; !found || at.offset < first {
		c.first[at.partition] = at.offset
	}
	last := r.topic.last[at.partition]
	if last == nil {
		last = &topicRecord{}
		r.topic.last[at.partition] = last
	}
	*last = topicRecord{c, *g, *at}
	if c.sealed && at.partition < len(r.topic.begin) && at.offset >= r.topic.begin[at.partition].Next {
		r.topic.late = append(r.topic.late, &topicRecord{c, *g, *at})
	}
}

// RecordName identifies a record of the topic.
func RecordName(g *hongbao.Grant) string {
	return fmt.Sprintf("%s %d %s", g.Campaign, g.Packet, g.EventID())
}

// judgeLate reports grants of sealed campaigns that were published again: before the seal the topic had each of them,
// unless it has expired since.
func (r *run) judgeLate() {
	for _, l := range r.topic.late {
		if g := &l.grant; g.Shard < 0 || g.Shard >= len(r.shards) || g.Time.Unix() >= r.shards[g.Shard].whole {
			r.found(model.Difference{Kind: DuplicateInTopic, Where: sourceNames[inTopic], Campaign: l.c.id, Packet: g.Packet,
				Event: g.EventID(), Detail: fmt.Sprintf("the topic has a packet of the sealed campaign once more at partition %d, "+
					"offset %d: %s", l.at.partition, l.at.offset, describeGrant(g))})
		}
	}
}

// bases returns where the next audit can begin to read the topic once the report's sealable campaigns are sealed. In
// each partition that is the first record of another campaign.
func (r *run) bases() []model.TopicBase {
	if len(r.report.Found) > 0 || r.partial() || r.Ledger == nil {
		return nil
	}
	var list []model.TopicBase
	for p, next := range r.topic.next {
		b := model.TopicBase{Part: p, First: next, Next: next, Last: -1}
		if last := r.topic.last[p]; last != nil {
			b.Last, b.Event = last.at.offset, RecordName(&last.grant)
		} else if p < len(r.topic.begin) {
			b.Last, b.Event = r.topic.begin[p].Last, r.topic.begin[p].Event
		}
		for _, c := range r.campaigns {
			if first, found := c.first[p]; found && !c.sealed && !r.sealable(c) {
				b.First = min(b.First, first)
			}
		}
		list = append(list, b)
	}
	return list
}
