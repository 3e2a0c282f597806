package subscriber

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/segmentio/kafka-go"

	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
	"github.com/hongbao-project/hongbao/topic"
)

// position is how far a group has come in a partition.
type position struct {
	next int64    // the offset of the first record that was not handled
	last landmark // the last record of this deployment before it, an event or a fence
}

// landmark is a record of the log and its offset. If the log has another record there, the topic was created again, or a
// broker lost the end of the log. An empty id means that no record is known.
type landmark struct {
	offset int64
	ms     int64 // the record's time: a copy of the event has another one
	id     string
}

func landmarkOf(m *kafka.Message) landmark {
	return landmark{offset: m.Offset, ms: m.Time.UnixMilli(), id: header(m, cloudevent.HeaderID)}
}

// landmarkWord begins the text of a landmark. Other programs may have committed other texts.
const landmarkWord = "hongbao-last"

// String returns the text that is stored beside an offset: the metadata of a commit, or a column of hongbao_offset.
func (l landmark) String() string {
	if l.id == "" {
		return ""
	}
	return fmt.Sprintf("%s %d %d %s", landmarkWord, l.offset, l.ms, l.id)
}

// parseLandmark returns no event if String has not written the text.
func parseLandmark(text string) landmark {
	f := strings.Split(text, " ")
	if len(f) != 4 || f[0] != landmarkWord {
		return landmark{}
	}
	offset, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return landmark{}
	}
	ms, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil {
		return landmark{}
	}
	return landmark{offset: offset, ms: ms, id: f[3]}
}

// place is a partition as a group reads it.
type place struct {
	group, topic string
	partition    int
}

func (s *session) place(partition int) place {
	return place{group: s.cfg.Group, topic: s.cfg.Topic, partition: partition}
}

// positioned is a Sink that stores how far a group has come, in the transaction of the effects. So it knows this when
// the group's offsets have expired. NewSQL's Sink is one.
type positioned interface {
	Sink
	// pushAt is like Push. at is the position after the last event.
	pushAt(ctx context.Context, events []topic.Event, of place, at position) (Report, error)
	// position returns the position of the last pushAt; false if there was none.
	position(ctx context.Context, of place) (position, bool, error)
}
