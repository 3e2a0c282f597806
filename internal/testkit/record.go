package testkit

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/cloudevent"
)

// Record returns the value and the headers of a grant's record in the topic, like those of the publisher. Tests in
// folder test read real records.
func Record(deployment string, g *hongbao.Grant) (value []byte, headers [][2]string) {
	at := g.Time.UTC().Format(cloudevent.TimeLayout)
	value, err := json.Marshal(map[string]any{
		"campaign": g.Campaign, "packet": g.Packet, "user": g.User, "amount": g.Amount, "shard": g.Shard, "seq": g.Seq,
		"epoch": g.Epoch, "time": at,
	})
	if err != nil {
		panic(err)
	}
	return value, [][2]string{
		{cloudevent.HeaderSpecVersion, cloudevent.SpecVersion},
		{cloudevent.HeaderSource, cloudevent.SourcePrefix + deployment}, {cloudevent.HeaderType, cloudevent.TypeGrant},
		{cloudevent.HeaderContentType, cloudevent.ContentType}, {cloudevent.HeaderID, g.EventID()},
		{cloudevent.HeaderTime, at}, {cloudevent.HeaderShard, strconv.Itoa(g.Shard)},
		{cloudevent.HeaderSeq, strconv.FormatInt(g.Seq, 10)}, {cloudevent.HeaderEpoch, fmt.Sprint(g.Epoch)},
	}
}
