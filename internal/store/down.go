package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// DownReport is a worker's report that it can't deliver to a sink.
type DownReport struct {
	Worker string `json:"worker"`
	// Code is the worker's code for the reason.
	Code string `json:"code"`
	// Since is by the worker's clock.
	Since time.Time `json:"since"`
	// Shards is on how many shards the worker can't deliver.
	Shards int    `json:"shards"`
	Error  string `json:"error"`
}

// downReportLasts is how long a report stays if its worker does not repeat it.
const downReportLasts = 15 * time.Second

// maxDownError is the maximum length of the error in a report, in bytes.
const maxDownError = 1000

// ReportDown stores a worker's report about a sink for 15 s. If several workers report, the newest report counts.
func (s *Store) ReportDown(ctx context.Context, sink string, r DownReport) error {
	if len(r.Error) > maxDownError {
		r.Error = r.Error[:maxDownError]
	}
	text, err := json.Marshal(r) // replaces a cut rune
	if err == nil {
		err = Classify(s.rdb.Set(ctx, s.shards[0].Keys.Down(sink), text, downReportLasts).Err())
	}
	if err != nil {
		return fmt.Errorf("report that sink %s is down: %w", sink, err)
	}
	return nil
}

// WithdrawDown deletes the report about a sink. Another worker that can't deliver repeats its own.
func (s *Store) WithdrawDown(ctx context.Context, sink string) error {
	if err := s.rdb.Del(ctx, s.shards[0].Keys.Down(sink)).Err(); err != nil {
		return fmt.Errorf("withdraw the report that sink %s is down: %w", sink, Classify(err))
	}
	return nil
}

// WorkerEnd says that a worker of a sink ended in order: it was stopped, and had finished or handed back its entries.
type WorkerEnd struct {
	Worker string `json:"worker"`
	// At is by the worker's clock.
	At time.Time `json:"at"`
}

// workerEndLasts is how long the end of a sink's last worker is known.
const workerEndLasts = 7 * 24 * time.Hour

// NoteEnd stores the end of a sink's worker for a week. The newest one counts.
func (s *Store) NoteEnd(ctx context.Context, sink string, e WorkerEnd) error {
	text, err := json.Marshal(e)
	if err == nil {
		err = Classify(s.rdb.Set(ctx, s.shards[0].Keys.Ended(sink), text, workerEndLasts).Err())
	}
	if err != nil {
		return fmt.Errorf("note that a worker of sink %s has ended: %w", sink, err)
	}
	return nil
}

// SinkReports are what the workers of a sink have last said about themselves. Each is nil if there is none.
type SinkReports struct {
	Down  *DownReport
	Ended *WorkerEnd
}

// Reports returns the reports about each sink, in the order of the sinks.
func (s *Store) Reports(ctx context.Context, sinks []string) ([]SinkReports, error) {
	var keys []string
	for _, sink := range sinks {
		keys = append(keys, s.shards[0].Keys.Down(sink), s.shards[0].Keys.Ended(sink))
	}
	texts, err := s.rdb.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, fmt.Errorf("read the reports of the sinks' workers: %w", Classify(err))
	}
	out := make([]SinkReports, len(sinks))
	for i := range out {
		out[i] = SinkReports{reportOf[DownReport](texts[2*i]), reportOf[WorkerEnd](texts[2*i+1])}
	}
	return out, nil
}

// reportOf returns nil for a report that this build can't read; a newer build may have written it.
func reportOf[T any](text any) *T {
	r := new(T)
	if text, ok := text.(string); !ok || json.Unmarshal([]byte(text), r) != nil {
		return nil
	}
	return r
}
