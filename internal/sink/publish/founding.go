package publish

import (
	"context"

	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
)

// lastRecords is how far back from the end of a log checkFounding looks for a record of this deployment. Other
// producers' records and control records may come after it.
const lastRecords = 100

// checkFounding checks which deployment wrote the last record of a partition. It runs before the first batch of each
// session, and again after each MaxClaimAge, since two deployments that start together both find no record of the
// other. If two deployments published under one id, two grants would have the same name.
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

// anothers reports whether a record is of another deployment, whatever its source. It returns false for a record
// without a founding, and for a Log that does not know its own founding.
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
