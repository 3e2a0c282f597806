package topic

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
)

// Event is a grant from the topic.
type Event struct {
	// Grant has no EntryID, because records do not have it.
	Grant hongbao.Grant
	// Source is /hongbao/<deployment>.
	Source string
}

// ErrForeign means that a record is not a grant of Hongbao, but a record of another producer or a fence record.
// Readers should ignore it.
var ErrForeign = errors.New("the record is not a grant of Hongbao")

// DecodeMessage decodes a record of the topic. It returns ErrForeign if the headers do not say that the record is a
// hongbao.grant.v1. If they say so but the record is malformed, the error is Permanent. DecodeMessage ignores unknown
// fields and headers, so later versions can add some.
func DecodeMessage(headers []kafka.Header, key, value []byte) (Event, error) {
	var h messageHeaders
	if err := h.read(headers); err != nil {
		return Event{}, err
	}
	e, err := h.event(key, value)
	if err != nil {
		return Event{}, hongbao.Errorf(hongbao.ClassPermanent, "event %.60q of %.80q can't be read: %w", h.id, h.source, err)
	}
	return e, nil
}

type messageHeaders struct {
	version, id, source, kind, when, trace, content, shard, seq, epoch []byte
}

func (h *messageHeaders) field(name string) *[]byte {
	switch name {
	case cloudevent.HeaderSpecVersion:
		return &h.version
	case cloudevent.HeaderID:
		return &h.id
	case cloudevent.HeaderSource:
		return &h.source
	case cloudevent.HeaderType:
		return &h.kind
	case cloudevent.HeaderTime:
		return &h.when
	case cloudevent.HeaderTrace:
		return &h.trace
	case cloudevent.HeaderContentType:
		return &h.content
	case cloudevent.HeaderShard:
		return &h.shard
	case cloudevent.HeaderSeq:
		return &h.seq
	case cloudevent.HeaderEpoch:
		return &h.epoch
	}
	return nil
}

func (h *messageHeaders) read(headers []kafka.Header) error {
	var twice string
	for i := range headers {
		f := h.field(headers[i].Key)
		if f == nil {
			continue
		}
		if *f != nil {
			twice = headers[i].Key
		}
		*f = headers[i].Value
	}
	if string(h.version) != cloudevent.SpecVersion || string(h.kind) != cloudevent.TypeGrant ||
		!strings.HasPrefix(string(h.source), cloudevent.SourcePrefix) {
		return ErrForeign
	}
	if twice != "" {
		return hongbao.Errorf(hongbao.ClassPermanent, "event %.60q of %.80q can't be read: it has header %s twice", h.id,
			h.source, twice)
	}
	return nil
}

// currencyCode also matches currencies that are no longer in use, because a topic keeps old records.
var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

// body is the value of a record. A nil pointer means that the field is missing.
type body struct {
	Campaign  string          `json:"campaign"`
	Packet    int64           `json:"packet"`
	User      string          `json:"user"`
	Amount    *hongbao.Amount `json:"amount"`
	Currency  string          `json:"currency"`
	Shard     *int            `json:"shard"`
	Seq       int64           `json:"seq"`
	Epoch     int64           `json:"epoch"`
	Time      string          `json:"time"`
	RequestID string          `json:"request_id"`
	Code      string          `json:"code"`
}

func (h *messageHeaders) event(key, value []byte) (Event, error) {
	var b body
	if err := json.Unmarshal(value, &b); err != nil {
		return Event{}, fmt.Errorf("value: %w", err)
	}
	if b.Amount == nil || b.Shard == nil {
		return Event{}, errors.New("amount and shard are required")
	}
	if b.Currency != "" && !currencyCode.MatchString(b.Currency) {
		return Event{}, fmt.Errorf("currency %.40q: want three capital letters", b.Currency)
	}
	if err := h.agree(&b, key); err != nil {
		return Event{}, err
	}
	when, err := time.Parse(cloudevent.TimeLayout, b.Time)
	if err != nil {
		return Event{}, fmt.Errorf("time: %w", err)
	}
	e := Event{Source: string(h.source), Grant: hongbao.Grant{
		Shard: *b.Shard, Seq: b.Seq, Epoch: b.Epoch, Campaign: b.Campaign, Packet: b.Packet, Amount: *b.Amount,
		User: b.User, RequestID: b.RequestID, Trace: string(h.trace), Time: when.UTC(), Currency: b.Currency, Code: b.Code,
	}}
	return e, cloudevent.CheckGrant(&e.Grant)
}

// agree checks that the key and the headers agree with the value. No header may be missing.
func (h *messageHeaders) agree(b *body, key []byte) error {
	shard, seq := strconv.Itoa(*b.Shard), strconv.FormatInt(b.Seq, 10)
	for _, c := range [...]struct {
		name string
		got  []byte
		want string
	}{
		{"the key", key, b.User},
		{cloudevent.HeaderID, h.id, shard + "-" + seq},
		{cloudevent.HeaderTime, h.when, b.Time},
		{cloudevent.HeaderContentType, h.content, cloudevent.ContentType},
		{cloudevent.HeaderShard, h.shard, shard},
		{cloudevent.HeaderSeq, h.seq, seq},
		{cloudevent.HeaderEpoch, h.epoch, strconv.FormatInt(b.Epoch, 10)},
	} {
		if string(c.got) != c.want {
			return fmt.Errorf("%s is %.140q, but according to the value it is %.140q", c.name, c.got, c.want)
		}
	}
	return nil
}
