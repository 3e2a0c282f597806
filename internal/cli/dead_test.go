package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/deliveries"
	"github.com/hongbao-project/hongbao/internal/store"
)

// The list has the words by which a person recognizes a forged entry, and warns only of credits that can be in doubt.
func TestListOfDeadLettersAboutForgedEntries(t *testing.T) {
	t.Parallel()
	refuted := store.Head{Seq: 900_000_000, Epoch: 1_771_358_400}.Refute(&stream.Entry{ID: "1771358400000-0", Shard: 15,
		Seq: 999_999_999, Epoch: 1_771_358_400})
	require.Error(t, refuted)
	list := func(l model.Letter) string {
		var out bytes.Buffer
		require.NoError(t, writeLetters(&out, &deliveries.LetterPage{Letters: []model.Letter{l}}))
		return out.String()
	}
	forged := model.Letter{ID: "balance/15/1-0", Sink: configs.SinkBalance, Class: hongbao.ClassConflict.String(), Reason: refuted.Error()}
	require.Contains(t, list(forged), "no grab wrote it; find out who can write to Redis")
	require.NotContains(t, list(forged), "in doubt")
	inDoubt := forged
	inDoubt.Seq = 7
	require.Contains(t, list(inDoubt), "do not drop a credit in doubt")
	inDoubt.Sink = configs.SinkKafka
	require.NotContains(t, list(inDoubt), "in doubt")
}
