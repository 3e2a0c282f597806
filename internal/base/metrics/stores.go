package metrics

import (
	"time"

	"github.com/hongbao-project/hongbao"
)

// Remembered exports how many bytes of grants this process remembers, and how many grants it forgot too early.
func (s *Set) Remembered(read func() (bytes, forgotten int64)) {
	s.registry.MustRegister(newPolled(func(add func(m *Metric, value float64, labels ...string)) {
		bytes, forgotten := read()
		add(Remembered, float64(bytes))
		add(Forgotten, float64(forgotten))
	}, Remembered, Forgotten))
}

// Ledger returns the function that a ledger calls for its transactions. again says that one lost against another and
// runs again.
func (s *Set) Ledger() func(kind string, took time.Duration, again bool, err error) {
	seconds, errors := s.histogram(LedgerSeconds), s.counter(LedgerErrors)
	for _, kind := range []string{"read", "write"} {
		for _, class := range classes {
			errors.WithLabelValues(kind, class.String())
		}
	}
	return func(kind string, took time.Duration, again bool, err error) {
		seconds.WithLabelValues(kind).Observe(took.Seconds())
		switch {
		case again:
			errors.WithLabelValues(kind, "again").Inc()
		case err != nil:
			errors.WithLabelValues(kind, hongbao.ClassOf(err).String()).Inc()
		}
	}
}

// Kafka returns the function that a client of Kafka calls for its requests.
func (s *Set) Kafka() func(request string, took time.Duration, err error) {
	seconds, errors := s.histogram(KafkaSeconds), s.counter(KafkaErrors)
	return func(request string, took time.Duration, err error) {
		seconds.WithLabelValues(request).Observe(took.Seconds())
		if err != nil {
			errors.WithLabelValues(request).Inc()
		} else {
			errors.WithLabelValues(request)
		}
	}
}
