package publish

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/base/stream"
)

// stored describes a batch in the payload of a claim. It has everything that is needed to send the batch again. Its
// text is
//
//	3 <compression> <producer id> <epoch> <partition> <base sequence> <unix ms of sending> <end offset noted before>
//	<topic> <runs>
//
// in one line with single spaces. A run is <first seq>-<last seq>@<first entry id>..<last entry id>; commas separate
// the runs.
type stored struct {
	numbers
	codec     kafka.Compression
	partition int
	ms        int64
	noted     int64
	topic     string
	runs      []run
}

// run is a range of consecutive events of one shard, with the first and the last entry that contain them.
type run struct {
	stream.SeqRange
	firstEntry, lastEntry string
}

// read reads the run's entries, as far as the stream still has them.
func (r *run) read(ctx context.Context, from Entries, in stream.Opening) ([]stream.Entry, error) {
	entries, err := from.Entries(ctx, in, r.firstEntry, r.lastEntry)
	if err != nil {
		return nil, fmt.Errorf("reading entries %s to %s of shard %d: %w", r.firstEntry, r.lastEntry, in.Shard, err)
	}
	return entries, nil
}

const (
	storedVersion = "3"
	maxStored     = 4 << 20
	maxEntryID    = 64
	// maxEpoch is one below the maximum, because a fence record needs a higher epoch.
	maxEpoch = math.MaxInt16 - 1
)

// extend adds the event to the last run if it directly follows it. Otherwise it starts a new run.
func (s *stored) extend(g *hongbao.Grant) {
	if n := len(s.runs); n > 0 && s.runs[n-1].Last+1 == g.Seq {
		s.runs[n-1].Last, s.runs[n-1].lastEntry = g.Seq, g.EntryID
		return
	}
	s.runs = append(s.runs, run{stream.SeqRange{First: g.Seq, Last: g.Seq}, g.EntryID, g.EntryID})
}

func (s *stored) events() []stream.SeqRange {
	e := make([]stream.SeqRange, len(s.runs))
	for i := range s.runs {
		e[i] = s.runs[i].SeqRange
	}
	return e
}

func (s *stored) count() int64 {
	var n int64
	for i := range s.runs {
		n += s.runs[i].Len()
	}
	return n
}

func (s *stored) String() string {
	b := make([]byte, 0, 128+64*len(s.runs))
	b = append(append(append(b, storedVersion...), ' '), codecName(s.codec)...)
	for _, n := range [...]int64{s.producer, int64(s.epoch), int64(s.partition), int64(s.sequence), s.ms, s.noted} {
		b = strconv.AppendInt(append(b, ' '), n, 10)
	}
	b = append(append(b, ' '), s.topic...)
	separator := byte(' ')
	for _, r := range s.runs {
		b = strconv.AppendInt(append(b, separator), r.First, 10)
		b = strconv.AppendInt(append(b, '-'), r.Last, 10)
		b = append(append(b, '@'), r.firstEntry...)
		b = append(append(b, ".."...), r.lastEntry...)
		separator = ','
	}
	return string(b)
}

// parseStored parses a payload. It accepts only texts that String can write.
func parseStored(payload string) (stored, error) {
	var s stored
	if len(payload) > maxStored {
		return s, fmt.Errorf("it has %d bytes, at most %d are allowed", len(payload), maxStored)
	}
	f := strings.Split(payload, " ")
	if f[0] != storedVersion {
		return s, fmt.Errorf("its version is %.20q, this build reads %s", f[0], storedVersion)
	}
	if len(f) != 10 {
		return s, fmt.Errorf("it has %d words after its version, want 9", len(f)-1)
	}
	var err error
	if s.codec, err = parseCodec(f[1]); err != nil {
		return s, err
	}
	var n [6]int64
	for i, most := range [...]int64{math.MaxInt64, maxEpoch, maxPartitions - 1, math.MaxInt32, int64(hongbao.MaxAmount),
		math.MaxInt64} {
		if n[i], err = plainNumber(f[i+2], most); err != nil {
			return s, fmt.Errorf("word %d: %w", i+3, err)
		}
	}
	s.numbers = numbers{producer: n[0], epoch: int16(n[1]), sequence: int32(n[3])}
	s.partition, s.ms, s.noted = int(n[2]), n[4], n[5]
	if s.topic = f[8]; !knob.IsTopic(s.topic) {
		return s, fmt.Errorf("topic %.80q is not a Kafka topic name", s.topic)
	}
	return s, s.parseRuns(f[9])
}

func (s *stored) parseRuns(text string) error {
	last := int64(-1)
	for text != "" || last < 0 {
		var one string
		var more bool
		one, text, more = strings.Cut(text, ",")
		if more && text == "" {
			return errors.New("runs: a comma at the end")
		}
		r, err := parseRun(one)
		if err != nil {
			return fmt.Errorf("run %.100q: %w", one, err)
		}
		if r.First <= last+1 && last >= 0 {
			return fmt.Errorf("run %.100q: it must start after a gap that follows %d", one, last)
		}
		last = r.Last
		s.runs = append(s.runs, r)
	}
	if s.count() > maxBatchGrants {
		return fmt.Errorf("it has %d events, at most %d are allowed", s.count(), maxBatchGrants)
	}
	return nil
}

func parseRun(text string) (run, error) {
	seqs, entries, ok := strings.Cut(text, "@")
	first, last, ok2 := strings.Cut(seqs, "-")
	firstEntry, lastEntry, ok3 := strings.Cut(entries, "..")
	if !ok || !ok2 || !ok3 {
		return run{}, errors.New("want first-last@entry..entry")
	}
	r := run{firstEntry: firstEntry, lastEntry: lastEntry}
	var err error
	if r.First, err = plainNumber(first, int64(hongbao.MaxAmount)); err != nil {
		return run{}, err
	}
	if r.Last, err = plainNumber(last, int64(hongbao.MaxAmount)); err != nil {
		return run{}, err
	}
	if r.First < 1 || r.Last < r.First || r.Len() > maxBatchGrants {
		return run{}, errors.New("its seqs are not a valid range")
	}
	if err := checkEntryID(firstEntry); err != nil {
		return run{}, err
	}
	return r, checkEntryID(lastEntry)
}

// checkEntryID accepts digits, letters a to z and "-". These occur in the ids of a stream and in the ids that a replay
// creates.
func checkEntryID(id string) error {
	if id == "" || len(id) > maxEntryID {
		return fmt.Errorf("entry id %.80q: want 1 to %d bytes", id, maxEntryID)
	}
	for i := range len(id) {
		if c := id[i]; (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '-' {
			return fmt.Errorf("entry id %.80q: want digits, letters a to z and -", id)
		}
	}
	return nil
}

// plainNumber parses a number in digits without a leading zero.
func plainNumber(s string, most int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, fmt.Errorf("%.30q is not a number in plain digits", s)
	}
	if n > most {
		return 0, fmt.Errorf("%d is above %d", n, most)
	}
	return n, nil
}
