package publish

import (
	"context"

	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
)

// lastRecords is the number of records at the end of a log in which checkFounding looks for a record of this
// deployment. They may include control records and records of other producers.
const lastRecords = 100

// checkFounding returns an error if another deployment with the same id wrote the last record of the partition. Grants
// of two such deployments could have the same event id. The check runs before the first batch of each session. It is
// repeated after MaxClaimAge, because two deployments that start together both find no record of the other one.
func (p *Publisher) checkFounding(ctx context.Context, s *slot) error {
	if p.cfg.Founding == "" || p.cfg.AnyFounding || s.session != nil && !p.tooOld(s.checked) {
		return nil
	}
	checked := p.now()
	b, err := p.ends(ctx, s.partition)
	if err != nil {
		return err
	}
	last := ""
	err = p.read(ctx, s.partition, bounds{max(b.start, b.end-lastRecords), b.end}, func(r *record) error {
		if f := foundingOf(r.headers); f != "" && valueOf(r.headers, cloudevent.HeaderSource) == p.source {
			last = f
		}
		return nil
	})
	if err != nil {
		return err
	}
	if last != "" && last != p.cfg.Founding {
		return hongbao.Errorf(hongbao.ClassBroken,
			"%s has records of another deployment with the same id (founding %.80q, ours is %.80q): give one of the two another "+
				"deployment.id or kafka.topic. If the other one no longer publishes here, add kafka_founding to unsafe.allow until "+
				"this deployment has published to each partition", p.where(s.partition), last, p.cfg.Founding)
	}
	s.checked = checked
	return nil
}

// anothers reports whether a record has the founding of another deployment; it does not compare the source. It returns
// false if the record has no founding, or if the Log does not know its own.
func (l *Log) anothers(r *record) bool {
	f := foundingOf(r.headers)
	return f != "" && l.cfg.Founding != "" && f != l.cfg.Founding
}

func foundingOf(headers []kafka.Header) string { return valueOf(headers, cloudevent.HeaderFounding) }

func valueOf(headers []kafka.Header, name string) string {
	for i := range headers {
		if headers[i].Key == name {
			return string(headers[i].Value)
		}
	}
	return ""
}
