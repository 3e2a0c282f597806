package stream

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
)

// EntryVersion is the newest version of stream entries that this build reads. Each kind of entry has its own version.
// So a build stops at an entry of a newer build, and makes a dead letter of an invalid one.
const EntryVersion = 3

// versions has the version of each kind.
var versions = map[EntryKind]int64{EntryClose: 1, EntryEpoch: 2, EntryGrant: 3}

// MaxEntryGrants is the maximum number of grants in one entry. One call of the grab script decides at most as many
// grabs.
const MaxEntryGrants = 128

// EntryKind is the kind of an entry.
type EntryKind string

// The kinds of entries.
const (
	EntryGrant EntryKind = "grant"
	EntryClose EntryKind = "close"
	// EntryEpoch starts an epoch: it covers the seqs that were skipped when the shard was opened again.
	EntryEpoch EntryKind = "epoch"
)

// Entry is one entry of a stream. It has the grants that one call decided, the close of a campaign on this shard, or
// the start of an epoch.
type Entry struct {
	ID       string
	Shard    int
	Kind     EntryKind
	Campaign string
	Seq      int64 // seq of the first event
	Epoch    int64
	Time     time.Time
	Grants   []hongbao.Grant // EntryGrant only
	Close    Closing         // EntryClose only
	Skipped  Skipped         // EntryEpoch only
}

// EventID returns the id of an event, SHARD-SEQ, as Grant.EventID.
func EventID(shard int, seq int64) string { return (&hongbao.Grant{Shard: shard, Seq: seq}).EventID() }

// Skipped is the content of an EntryEpoch. The seqs from the entry's Seq to Last were skipped: no event has them. Redis
// has lost events, and other stores may know events up to Known.
type Skipped struct{ Last, Known int64 }

// Closing says what a shard had granted, and what it had left, when a campaign was closed on it.
type Closing struct {
	Granted       int64
	GrantedAmount hongbao.Amount
	Left          int64
	LeftAmount    hongbao.Amount
}

// Plus adds the numbers of two shards.
func (c Closing) Plus(d Closing) Closing {
	return Closing{c.Granted + d.Granted, c.GrantedAmount + d.GrantedAmount, c.Left + d.Left, c.LeftAmount + d.LeftAmount}
}

// Events returns how many events the entry contains. Their seqs are Seq to Seq+Events-1.
func (e *Entry) Events() int64 {
	switch e.Kind {
	case EntryClose:
		return 1
	case EntryEpoch:
		return e.Skipped.Last - e.Seq + 1
	case EntryGrant:
	}
	return int64(len(e.Grants))
}

// ErrNewerEntry says that a newer build wrote the entry. Errors that wrap it have class Broken, so the shard stops and
// no entry is skipped.
var ErrNewerEntry = errors.New("the entry was written by a newer build of Hongbao")

// Last returns the seq of the entry's last event.
func (e *Entry) Last() int64 { return e.Seq + e.Events() - 1 }

// ParseEntry parses a stream entry. values are its field names and values in the order of XRANGE. The name of the first
// field is the version. Further fields are those of a later release, and are ignored.
//
// The first line of the value is "kind campaign seq epoch ms", with ms as Unix time. An entry of grants appends the
// currency to this line, and has one more line for each grant. It has packet, amount, user, request id and traceparent,
// separated by one space; "-" means empty.
//
// The error is Permanent for an invalid entry, and Broken for an entry with a newer version.
func ParseEntry(shard int, id string, values []string) (Entry, error) {
	e, err := parseEntry(shard, id, values)
	if err != nil && !errors.Is(err, ErrNewerEntry) {
		return Entry{}, hongbao.Errorf(hongbao.ClassPermanent, "entry %s of shard %d can't be read: %w", id, shard, err)
	}
	if err != nil {
		return Entry{}, hongbao.Errorf(hongbao.ClassBroken, "entry %s of shard %d: %w; upgrade this program", id, shard, err)
	}
	return e, nil
}

func parseEntry(shard int, id string, values []string) (Entry, error) {
	if len(values) < 2 {
		return Entry{}, errors.New("it has no field")
	}
	version, err := parseNumber(values[0])
	if err != nil {
		return Entry{}, fmt.Errorf("its field's name is not a version: %w", err)
	}
	if version > EntryVersion {
		return Entry{}, fmt.Errorf("%w: it has version %d, this build reads up to %d", ErrNewerEntry, version, EntryVersion)
	}
	if version < 1 {
		return Entry{}, fmt.Errorf("it has version %d, want 1 to %d", version, EntryVersion)
	}
	head, body, ok := strings.Cut(values[1], "\n")
	words := strings.Split(head, " ")
	e := Entry{ID: id, Shard: shard, Kind: EntryKind(words[0])}
	if versions[e.Kind] != version {
		return Entry{}, fmt.Errorf("version %d has no kind %.20q", version, words[0])
	}
	count := 5
	if e.Kind == EntryGrant {
		count = 6
	}
	if !ok || len(words) != count {
		return Entry{}, fmt.Errorf("its first line has %d words, want %d: kind, campaign, seq, epoch, time, the currency of "+
			"grants; and more lines after it", len(words), count)
	}
	if err := e.parseHead(words); err != nil {
		return Entry{}, err
	}
	switch e.Kind {
	case EntryGrant:
		err = e.parseGrants(body, words[5])
	case EntryClose:
		err = e.parseClose(body)
	case EntryEpoch:
		err = e.parseSkipped(body)
	}
	return e, err
}

// parseHead parses the words of the first line, without the kind.
func (e *Entry) parseHead(words []string) error {
	if e.Campaign = words[1]; e.Kind == EntryEpoch && e.Campaign == "-" {
		e.Campaign = ""
	} else if err := hongbao.CheckCampaignID(e.Campaign); err != nil {
		return fmt.Errorf("campaign: %w", err)
	}
	var err error
	if e.Seq, err = parsePositive(words[2]); err != nil {
		return fmt.Errorf("seq: %w", err)
	}
	if e.Epoch, err = parsePositive(words[3]); err != nil {
		return fmt.Errorf("epoch: %w", err)
	}
	ms, err := parsePositive(words[4])
	if err != nil {
		return fmt.Errorf("time: %w", err)
	}
	e.Time = time.UnixMilli(ms).UTC()
	return nil
}

// CampaignOf returns the campaign of an entry, even if the rest of the entry is unreadable. It returns "" if there is
// no valid campaign id.
func CampaignOf(values []string) string {
	if len(values) < 2 {
		return ""
	}
	_, rest, _ := strings.Cut(values[1], " ")
	campaign, _, _ := strings.Cut(rest, " ")
	if hongbao.CheckCampaignID(campaign) != nil {
		return ""
	}
	return campaign
}

// currencyWord matches a currency code, also one that is no longer in use, or "-" for none.
var currencyWord = regexp.MustCompile(`^([A-Z]{3}|-)$`)

func (e *Entry) parseGrants(lines, currency string) error {
	n := strings.Count(lines, "\n") + 1
	if n > MaxEntryGrants {
		return fmt.Errorf("it has %d grants, at most %d are allowed", n, MaxEntryGrants)
	}
	if e.Seq > int64(hongbao.MaxAmount)-int64(n) {
		return errors.New("its seqs exceed 2^53")
	}
	if !currencyWord.MatchString(currency) {
		return fmt.Errorf("currency %.20q: want three capital letters, or - for none", currency)
	}
	currency = strings.TrimPrefix(currency, "-")
	e.Grants = make([]hongbao.Grant, n)
	for i := range n {
		var line string
		line, lines, _ = strings.Cut(lines, "\n")
		g := &e.Grants[i]
		g.Shard, g.Epoch, g.EntryID, g.Campaign, g.Time = e.Shard, e.Epoch, e.ID, e.Campaign, e.Time
		g.Seq, g.Currency = e.Seq+int64(i), currency
		if err := parseLine(g, line); err != nil {
			return fmt.Errorf("grant %d: %w", i+1, err)
		}
	}
	return nil
}

func parseLine(g *hongbao.Grant, line string) error {
	var f [5]string
	for i := range f {
		var more bool
		f[i], line, more = strings.Cut(line, " ")
		if more != (i < len(f)-1) {
			return errors.New("want packet, amount, user, request id and traceparent, separated by one space")
		}
	}
	var err error
	if g.Packet, err = parsePositive(f[0]); err != nil {
		return fmt.Errorf("packet: %w", err)
	}
	amount, err := parseNumber(f[1])
	if err != nil {
		return fmt.Errorf("amount: %w", err)
	}
	g.Amount = hongbao.Amount(amount)
	if err := hongbao.CheckID(f[2]); err != nil {
		return fmt.Errorf("user: %w", err)
	}
	g.User = f[2]
	if g.RequestID, err = optionalID(f[3]); err != nil {
		return fmt.Errorf("request id: %w", err)
	}
	if g.Trace, err = optionalID(f[4]); err != nil {
		return fmt.Errorf("traceparent: %w", err)
	}
	return nil
}

func (e *Entry) parseClose(line string) error {
	f := strings.Split(line, " ")
	if len(f) != 4 {
		return fmt.Errorf("a close has %d numbers, want 4", len(f))
	}
	var n [4]int64
	for i := range f {
		var err error
		if n[i], err = parseNumber(f[i]); err != nil {
			return fmt.Errorf("a close, number %d: %w", i+1, err)
		}
	}
	e.Close = Closing{Granted: n[0], GrantedAmount: hongbao.Amount(n[1]), Left: n[2], LeftAmount: hongbao.Amount(n[3])}
	return nil
}

func (e *Entry) parseSkipped(line string) error {
	last, known, ok := strings.Cut(line, " ")
	if !ok {
		return errors.New("an epoch: want the last seq that is skipped and the highest one that is known")
	}
	var err1, err2 error
	e.Skipped.Last, err1 = parsePositive(last)
	e.Skipped.Known, err2 = parseNumber(known)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("an epoch: %w", err)
	}
	if e.Skipped.Last < e.Seq {
		return fmt.Errorf("an epoch: it skips seqs up to %d, below its own", e.Skipped.Last)
	}
	return nil
}

func optionalID(s string) (string, error) {
	if s == "-" {
		return "", nil
	}
	return s, hongbao.CheckID(s)
}

// parseNumber parses a decimal number up to MaxAmount. It accepts digits only: no sign, space, exponent or leading
// zero.
func parseNumber(s string) (int64, error) {
	if s == "" || len(s) > 1 && s[0] == '0' || s[0] < '0' || s[0] > '9' {
		return 0, fmt.Errorf("%.30q is not a whole number in plain digits", s)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.30q is not a whole number in plain digits", s)
	}
	if n > int64(hongbao.MaxAmount) {
		return 0, fmt.Errorf("%d is above %d", n, hongbao.MaxAmount)
	}
	return n, nil
}

func parsePositive(s string) (int64, error) {
	n, err := parseNumber(s)
	if err == nil && n == 0 {
		err = errors.New("it is 0, numbers begin at 1")
	}
	return n, err
}
