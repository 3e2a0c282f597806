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

// Down returns the newest report about each sink that has one.
func (s *Store) Down(ctx context.Context, sinks []string) (map[string]*DownReport, error) {
	keys := make([]string, len(sinks))
	for i, sink := range sinks {
		keys[i] = s.shards[0].Keys.Down(sink)
	}
	texts, err := s.rdb.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, fmt.Errorf("read which sinks are down: %w", Classify(err))
	}
	out := map[string]*DownReport{}
	for i, text := range texts {
		var r DownReport
		if text, ok := text.(string); ok && json.Unmarshal([]byte(text), &r) == nil { // a newer build may write other texts
			out[sinks[i]] = &r
		}
	}
	return out, nil
}
