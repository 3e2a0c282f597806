package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Codes returns the codes of docs/alarms.md that a long-lived process logs. The metric counts any further code as
// "other".
func Codes() []string {
	return []string{
		"redis_went_back", "redis_lost_data", "redis_restored", "redis_lost_append_only", "redis_evicts",
		"campaign_paused", "forged_entry", "shard_frozen", "redis_down", "shard_broken", "sink_broken",
		"sink_down", "unknown_campaign", "incomplete_plan", "newer_schema", "ledger_asynchronous",
		"events_lost", "dead_letter", "unreadable_entry", "handler_panicked", "group_vanished",
		"keys_unread", "fsync_slow", "sink_opening", "sink_paused", "sink_campaign_paused", "certificate_unread",
	}
}

// CountAlarms returns a logger that counts the log lines that have a code.
func (s *Set) CountAlarms(log *zap.Logger) *zap.Logger {
	count := s.counter(Alarms)
	counters := map[string]prometheus.Counter{}
	for _, code := range append(Codes(), "other") {
		counters[code] = count.WithLabelValues(code) // starts at 0, so that the first line is an increase
	}
	return log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return alarmCore{c, counters} }))
}

type alarmCore struct {
	zapcore.Core
	counters map[string]prometheus.Counter
}

// With implements zapcore.Core.
func (c alarmCore) With(fields []zapcore.Field) zapcore.Core {
	return alarmCore{c.Core.With(fields), c.counters}
}

// Enabled implements zapcore.Core. Every line that may have a code reaches Write, whatever log.level is.
func (c alarmCore) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel || c.Core.Enabled(l) }

// Check implements zapcore.Core. Lines below the level Warn are not counted: they have no code.
func (c alarmCore) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Level < zapcore.WarnLevel {
		return c.Core.Check(e, to)
	}
	return to.AddCore(e, c)
}

// Write implements zapcore.Core. It counts a line before it asks for the level.
func (c alarmCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	for i := range fields {
		if fields[i].Key != "code" || fields[i].Type != zapcore.StringType {
			continue
		}
		if n, ok := c.counters[fields[i].String]; ok {
			n.Inc()
		} else {
			c.counters["other"].Inc()
		}
	}
	if !c.Core.Enabled(e.Level) {
		return nil
	}
	return c.Core.Write(e, fields)
}
