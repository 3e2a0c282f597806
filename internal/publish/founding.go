package publish

import (
	"context"

	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/cloudevent"
)

// lastRecords is how far back from the end of a log a record of this deployment is looked for: other producers' records
// and control records may stand behind it.
const lastRecords = 100

// checkFounding looks once, before the first batch of a process for a partition, whose the last record there is. Two
// deployments with one id would give two grants the same name.
func (p *Publisher) checkFounding(ctx context.Context, s *slot) error {
	if s.ours || p.cfg.Founding == "" {
		return nil
	}
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
				"deployment.id or kafka.topic", p.where(s.partition), last, p.cfg.Founding)
	}
	s.ours = true
	return nil
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
