package publish

import (
	"bytes"
	"encoding/binary"
	"github.com/hongbao-project/hongbao/internal/testkit"
	"io"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hongbao-project/hongbao"
)

// codecNames are all valid values of publisher.compression.
var codecNames = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// The header of a compressed batch names the codec, and kafka-go's decoder can read the batch. Equal grants give equal
// bytes.
func TestPackedBatchReadsBack(t *testing.T) {
	t.Parallel()
	for i, name := range codecNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			codec, err := parseCodec(name)
			require.NoError(t, err)
			used := newBatch("/hongbao/d1") // shared by all cases, so that its buffers are reused
			rapid.Check(t, func(t *rapid.T) {
				grants := rapid.SliceOfN(rapid.Custom(drawGrant), 1, 200).Draw(t, "grants")
				raw := packed(t, used, codec, grants)
				require.EqualValues(t, i, binary.BigEndian.Uint16(raw[atAttributes:]))
				require.Equal(t, raw, packed(t, newBatch("/hongbao/d1"), codec, grants))
				requireReadsBack(t, raw, grants)
			})
		})
	}
}

func packed(t require.TestingT, b *batch, codec kafka.Compression, grants []hongbao.Grant) []byte {
	b.start(numbers{77, 3, 12}, 1763715000123)
	for i := range grants {
		require.True(t, b.add(&grants[i], 1<<30))
	}
	raw, err := b.pack(codec)
	require.NoError(t, err)
	return bytes.Clone(raw)
}

func TestCompressionMakesABatchSmaller(t *testing.T) {
	t.Parallel()
	grants := newStore().grants(0, 2_000, decided)
	plain := len(packed(t, newBatch("/hongbao/d1"), uncompressed, grants))
	for _, name := range codecNames[1:] {
		codec, err := parseCodec(name)
		require.NoError(t, err)
		size := len(packed(t, newBatch("/hongbao/d1"), codec, grants))
		t.Logf("%s: %d of %d bytes", name, size, plain)
		require.Less(t, size, plain/3, name)
	}
}

// A worker that takes over a compressed batch sends the same bytes again, even if it is configured with another
// compression.
func TestTakenOverBatchIsCompressedAsItWas(t *testing.T) {
	t.Parallel()
	for _, name := range codecNames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.cfg.Compression = name
			sent := &recorder{}
			p, w := b.worker(t)
			w.answer = sent.note
			p.cfg.AttemptTime = hopeless
			g := b.store.grants(0, 20, decided)
			w.fate = func() fate { return lost }
			requireClass(t, p.Handle(t.Context(), testkit.Batch(g)), 20, hongbao.ClassUnknown, true)
			require.NotEmpty(t, sent.raw)

			b.cfg.Compression = "none"
			if name == "none" {
				b.cfg.Compression = "zstd"
			}
			again := &recorder{}
			other, w := b.worker(t)
			w.answer = again.note
			require.Nil(t, other.Handle(t.Context(), testkit.Batch(g)))
			require.EqualValues(t, 1, other.Stats().SentAgain)
			require.Equal(t, sent.raw[0], again.raw[0])
			requireOneCopy(t, &b.cfg, g)
		})
	}
}

// recorder records the batches of produce requests.
type recorder struct{ raw [][]byte }

func (r *recorder) note(req kafka.Request) error {
	produce, ok := req.(*rawproduce.Request)
	if !ok {
		return nil
	}
	set := &produce.Topics[0].Partitions[0].RecordSet
	raw, err := io.ReadAll(set.Reader)
	set.Reader = bytes.NewReader(raw)
	r.raw = append(r.raw, raw)
	return err
}

// If the broker has forgotten the producer of a compressed batch, the next worker reads the log to find the batch.
func TestCompressedBatchIsLookedBackAt(t *testing.T) {
	t.Parallel()
	for _, f := range []fate{swallow, lost} {
		b := setup(t)
		b.cfg.Compression = "zstd"
		g, _ := orphan(t, b, 20, f)
		p, _ := forgetful(t, b)
		require.Nil(t, p.Handle(t.Context(), testkit.Batch(g)))
		requireOrphansOnce(t, b, g)
	}
}

func TestCompressionIsChecked(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "brotli", "4", "uncompressed"} {
		cfg := testConfig("127.0.0.1:1")
		cfg.Compression = name
		_, err := New(cfg, newStore(), newStore())
		require.ErrorContains(t, err, "Compression", name)
	}
}
