package metrics

import (
	"time"

	"github.com/hongbao-project/hongbao"
)

// Remembered exports the bytes of the grants that this process remembers, and the number of grants that it forgot too
// early.
func (s *Set) Remembered(read func() (bytes, forgotten int64)) {
	s.registry.MustRegister(newPolled(func(add func(m *Metric, value float64, labels ...string)) {
		bytes, forgotten := read()
		add(Remembered, float64(bytes))
		add(Forgotten, float64(forgotten))
	}, Remembered, Forgotten))
}

// Ledger returns a function that records a transaction of the ledger. Its argument again says that the transaction
// conflicted with another transaction and is retried.
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

// Kafka returns a function that records a request of a Kafka client.
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
