package metrics

import (
	"context"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/access"
)

// Keys exports the next end of an API key of each role. Each scrape calls ends.
func (s *Set) Keys(ends func(context.Context) map[access.Role]time.Time) {
	s.registry.MustRegister(newPolled(func(add func(m *Metric, value float64, labels ...string)) {
		for role, end := range ends(context.Background()) {
			add(KeyEnds, float64(end.Unix()), string(role))
		}
	}, KeyEnds))
}

// Certificates exports when the certificate of each knob expires. Each scrape calls ends.
func (s *Set) Certificates(ends func() map[string]time.Time) {
	s.registry.MustRegister(newPolled(func(add func(m *Metric, value float64, labels ...string)) {
		for knob, end := range ends() {
			add(CertificateEnds, float64(end.Unix()), knob)
		}
	}, CertificateEnds))
}
