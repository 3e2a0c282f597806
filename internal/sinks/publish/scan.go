package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"golang.org/x/sync/errgroup"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/topic"
)

// maxEmptyFetches limits the consecutive responses without a record at or after the requested offset.
const maxEmptyFetches = 20

// record is one record of the log. Its bytes are valid until the next record is read.
type record struct {
	offset     int64
	time       time.Time // when a worker first sent it, by that worker's clock
	headers    []kafka.Header
	key, value []byte
	batch      numbers // numbers of the record's batch; producer is -1 if it has none
}

// own reports whether the record belongs to this deployment.
func (l *Log) own(r *record) bool {
	return valueOf(r.headers, cloudevent.HeaderSource) == l.source && !l.anothers(r)
}

func (r *record) isFence() bool {
	return valueOf(r.headers, cloudevent.HeaderType) == cloudevent.TypeFence
}

// ScanReport says what a scan read and skipped.
type ScanReport struct {
	Events int64
	// Foreign counts the records of other producers and of other deployments.
	Foreign int64
	// Malformed counts unreadable records that claim to be grants of this deployment. FirstMalformed is the error of
	// the first one, with its offset and partition.
	Malformed      int64
	FirstMalformed error
	// Since has a time for each partition: the partition has all records since then, but older ones may have expired.
	// The zero time means that nothing has expired.
	Since []time.Time
	// Next has, for each partition, the offset after the last record that was read. The next scan can start there.
	Next []int64
}

// Position is a record's place in the topic, and its time: when a worker first sent it.
type Position struct {
	Partition int
	Offset    int64
	Time      time.Time
}

// Scan reads the topic and passes every event of this deployment to fn. from has the first offset for each partition;
// nil means the start of the log. Scan stops at the end that each partition had when the scan started. One goroutine
// per partition calls fn, in order of the offsets. An error of fn ends the scan. Records that are not grants of this
// deployment are counted and skipped.
func (l *Log) Scan(ctx context.Context, from []int64,
	fn func(at Position, e topic.Event) error) (ScanReport, error) {
	if from != nil && len(from) != l.cfg.Partitions {
		return ScanReport{}, fmt.Errorf("scanning topic %s: got %d offsets for %d partitions", l.cfg.Topic, len(from),
			l.cfg.Partitions)
	}
	parts := make([]partitionScan, l.cfg.Partitions)
	report := ScanReport{Since: make([]time.Time, l.cfg.Partitions), Next: make([]int64, l.cfg.Partitions)}
	group, ctx := errgroup.WithContext(ctx)
	for i := range parts {
		parts[i] = partitionScan{l: l, partition: i, from: -1, fn: fn}
		if from != nil {
			parts[i].from = from[i]
		}
		group.Go(func() error { return parts[i].run(ctx) })
	}
	err := group.Wait()
	for i := range parts {
		one := &parts[i].report
		report.Events += one.Events
		report.Foreign += one.Foreign
		report.Malformed += one.Malformed
		if report.FirstMalformed == nil {
			report.FirstMalformed = one.FirstMalformed
		}
		report.Since[i], report.Next[i] = parts[i].since(), parts[i].next
	}
	return report, err
}

// Offsets returns two offsets for each partition: that of the first record with the time since or later, and the offset
// after the last record. The zero time means the start of the log. The time of a record is when a worker first sent it.
func (l *Log) Offsets(ctx context.Context, since time.Time) (from, end []int64, err error) {
	for i := range l.cfg.Partitions {
		b, err := l.ends(ctx, i)
		if err != nil {
			return nil, nil, err
		}
		first := b.start
		if !since.IsZero() {
			if first, err = l.offsetAt(ctx, i, since, b); err != nil {
				return nil, nil, err
			}
		}
		from, end = append(from, first), append(end, b.end)
	}
	return from, end, nil
}

// partitionScan is the scan of one partition.
type partitionScan struct {
	l         *Log
	partition int
	from      int64
	fn        func(at Position, e topic.Event) error
	report    ScanReport
	start     int64 // first offset of the log
	next      int64
	began     time.Time
	heads     int       // number of the first events of the log that were read
	batches   int       // number of batches with these events
	batch     numbers   // of the last one
	latest    time.Time // latest time among the first events
}

func (s *partitionScan) run(ctx context.Context) error {
	s.began = time.Now()
	b, err := s.l.ends(ctx, s.partition)
	if err != nil {
		return err
	}
	s.start = b.start
	if s.from >= 0 {
		if s.from < b.start || s.from > b.end {
			return hongbao.Errorf(hongbao.ClassBroken, "%s has offsets %d to %d, but the scan should start at %d: stopped; "+
				"see docs/kafka.md, \"When the topic went back\"", s.l.where(s.partition), b.start, b.end, s.from)
		}
		if err := s.readHead(ctx, bounds{b.start, s.from}); err != nil {
			return err
		}
		b.start = s.from
	}
	s.next = b.start
	return s.l.read(ctx, s.partition, b, s.one)
}

var errEnough = errors.New("enough was read")

// readHead reads the first events of a log of which older ones may have expired, for since. The scan does not count
// them.
func (s *partitionScan) readHead(ctx context.Context, b bounds) error {
	if b.start == 0 {
		return nil
	}
	err := s.l.read(ctx, s.partition, b, func(r *record) error {
		if _, err := topic.DecodeMessage(r.headers, r.key, r.value); err == nil && s.l.own(r) {
			s.first(r)
		}
		if s.enough() {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// first notes one of the first events of the log.
func (s *partitionScan) first(r *record) {
	if s.enough() {
		return
	}
	if r.batch != s.batch || r.batch.producer < 0 || s.heads == 0 {
		s.batches, s.batch = s.batches+1, r.batch
	}
	if s.heads++; r.time.After(s.latest) {
		s.latest = r.time
	}
}

// enough reports whether the first events suffice for since.
func (s *partitionScan) enough() bool { return s.heads >= firstEvents && s.batches >= firstBatches }

// At returns the event with the given offset; false if the log has no event of this deployment there.
func (l *Log) At(ctx context.Context, partition int, offset int64) (e topic.Event, found bool, err error) {
	b, err := l.ends(ctx, partition)
	if err != nil || offset < b.start || offset >= b.end {
		return e, false, err
	}
	err = l.read(ctx, partition, bounds{offset, b.end}, func(r *record) error {
		if r.offset == offset && l.own(r) {
			one, err := topic.DecodeMessage(r.headers, r.key, r.value)
			e, found = one, err == nil
		}
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return e, found, err
}

func (s *partitionScan) one(r *record) error {
	s.next = r.offset + 1
	e, err := topic.DecodeMessage(r.headers, r.key, r.value)
	switch {
	case r.isFence() && s.l.own(r):
		return nil
	case errors.Is(err, topic.ErrForeign) || s.l.anothers(r) || err == nil && e.Source != s.l.source:
		s.report.Foreign++
		return nil
	case err != nil:
		s.report.Malformed++
		if s.report.FirstMalformed == nil {
			s.report.FirstMalformed = fmt.Errorf("offset %d of %s: %w", r.offset, s.l.where(s.partition), err)
		}
		return nil
	}
	s.report.Events++
	s.first(r)
	return s.fn(Position{s.partition, r.offset, r.time}, e)
}

// firstEvents and firstBatches are how many events at the start of a log, of how many batches, give since. Fewer would
// prove little, because a batch that is sent again keeps its old time: after a pause each shard may send one again.
const (
	firstEvents  = 1_000
	firstBatches = 16
)

// since returns the time since which the log is complete; zero if nothing has expired. It can only use times, because
// the log is not ordered by seq. Requeued dead letters come late, and the batches of two workers may arrive in either
// order.
func (s *partitionScan) since() time.Time {
	switch {
	case s.start == 0:
		return time.Time{}
	case s.heads == 0: // everything that was sent before the scan may have expired
		return s.began.Add(stream.ClockSkew)
	}
	return s.latest.Add(stream.ClockSkew)
}

// ends returns the first and the last offset of a partition's log.
func (l *Log) ends(ctx context.Context, partition int) (b bounds, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.AttemptTime)
	defer cancel()
	err = l.ask(ctx, "asking for the ends of the log", func(ctx context.Context) (err error) {
		b, err = l.bounds(ctx, partition)
		return err
	})
	return b, err
}

// read passes the records of a partition with offsets in b to fn. It skips control batches, decompresses compressed
// batches, and includes records of uncommitted transactions.
func (l *Log) read(ctx context.Context, partition int, b bounds, fn func(*record) error) error {
	empty := 0
	for at := b.start; at < b.end; {
		set, err := l.page(ctx, partition, at)
		for n := 0; n < slowPages && hongbao.IsOutage(err) && ctx.Err() == nil; n++ { // a slow response must not end it
			set, err = l.page(ctx, partition, at)
		}
		if err != nil {
			return err
		}
		next, err := l.drain(partition, set, bounds{at, b.end}, fn)
		if err != nil {
			return err
		}
		if next > at {
			at, empty = next, 0
			continue
		}
		if empty++; empty == maxEmptyFetches || !retry.Pause(ctx, firstPause) {
			return hongbao.Outagef(hongbao.ClassTransient, "reading %s: no record at offset %d or later, but the log ends at %d",
				l.where(partition), at, b.end)
		}
	}
	return nil
}

// slowPages is the number of additional attempts for each page of the log.
const slowPages = 4

// page fetches records from offset at, and retries for up to AttemptTime.
func (l *Log) page(ctx context.Context, partition int, at int64) (set kafka.RecordReader, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.AttemptTime)
	defer cancel()
	err = l.ask(ctx, "reading "+l.where(partition), func(ctx context.Context) (err error) {
		set, err = l.fetch(ctx, partition, at)
		return err
	})
	return set, err
}

func (l *Log) fetch(ctx context.Context, partition int, offset int64) (kafka.RecordReader, error) {
	res, err := l.client.Fetch(ctx, &kafka.FetchRequest{
		Topic: l.cfg.Topic, Partition: partition, Offset: offset,
		MinBytes: 1, MaxBytes: int64(l.cfg.FetchBytes), MaxWait: 200 * time.Millisecond,
		IsolationLevel: kafka.ReadUncommitted,
	})
	if err != nil {
		return nil, err
	}
	return res.Records, res.Error
}

// drain passes the records of one response to fn. It returns the offset after the last record.
func (l *Log) drain(partition int, set kafka.RecordReader, b bounds, fn func(*record) error) (int64, error) {
	batches := []kafka.RecordReader{set}
	if stream, ok := set.(*protocol.RecordStream); ok {
		batches = stream.Records // RecordStream hides control batches, so their offsets would be unknown
	}
	var r record
	for _, one := range batches {
		_, control := one.(*protocol.ControlBatch)
		r.batch = numbers{producer: -1}
		if b, ok := one.(*protocol.RecordBatch); ok {
			r.batch = numbers{b.ProducerID, b.ProducerEpoch, b.BaseSequence}
		}
		for {
			raw, err := one.ReadRecord()
			if errors.Is(err, io.EOF) {
				break
			}
			if err == nil {
				err = r.set(raw)
			}
			if err != nil {
				return b.start, hongbao.Errorf(hongbao.ClassBroken, "a record at or after offset %d of %s can't be read: %w",
					b.start, l.where(partition), err)
			}
			if r.offset < b.start || r.offset >= b.end { // a response may contain more than was requested
				continue
			}
			b.start = r.offset + 1
			if control {
				continue
			}
			if err := fn(&r); err != nil {
				return b.start, err
			}
		}
	}
	return b.start, nil
}

// set copies the data of raw into r and closes it.
func (r *record) set(raw *kafka.Record) error {
	r.offset, r.time, r.headers = raw.Offset, raw.Time, raw.Headers
	var err error
	if r.key, err = readInto(r.key[:0], raw.Key); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	if r.value, err = readInto(r.value[:0], raw.Value); err != nil {
		return fmt.Errorf("value: %w", err)
	}
	return nil
}

func readInto(to []byte, from kafka.Bytes) ([]byte, error) {
	if from == nil {
		return to, nil
	}
	defer from.Close()
	n := from.Len()
	if cap(to) < n {
		to = make([]byte, 0, n+n/2)
	}
	to = to[:n]
	_, err := io.ReadFull(from, to)
	return to, err
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
