package dev

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/dev/faults"
	"github.com/hongbao-project/hongbao/internal/dev/local"
	"github.com/hongbao-project/hongbao/internal/front/console"
	"github.com/hongbao-project/hongbao/internal/model"
)

// breaker records the faults, and offers to restore a server that is cut off.
type breaker struct {
	console.Faults
	cut    map[string]string
	caused chan string
}

func (b *breaker) Buttons() []model.Fault {
	return []model.Fault{{Name: faults.KillWorker}, {Name: cmp.Or(b.cut[faults.CutRedis], faults.CutRedis)},
		{Name: cmp.Or(b.cut[faults.CutKafka], faults.CutKafka)}, {Name: faults.LoseAnswers}, {Name: faults.RejectGrant},
		{Name: faults.EmptyRedis}}
}

func (b *breaker) Cause(_ context.Context, fault string) error {
	switch fault {
	case faults.CutRedis:
		b.cut[fault] = faults.RestoreRedis
	case faults.CutKafka:
		b.cut[fault] = faults.RestoreKafka
	}
	b.caused <- fault
	return errors.New("it may fail")
}

func TestKeys(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &breaker{cut: map[string]string{}, caused: make(chan string)}
	k := &keys{say: local.SayTo(&out), faults: b, link: func() string { return "http://127.0.0.1/link/1" },
		guests: &guests{say: local.SayTo(&out)}}
	in, typed := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		k.run(ctx, in)
	}()
	for _, c := range [][2]string{{"k", faults.KillWorker}, {"c", faults.CutKafka}, {" c ", faults.RestoreKafka},
		{"r", faults.CutRedis}, {"r", faults.RestoreRedis}, {"l", faults.LoseAnswers},
		{"d", faults.RejectGrant}, {"empty", faults.EmptyRedis}} {
		_, err := io.WriteString(typed, "\n"+c[0]+"\n")
		require.NoError(t, err)
		require.Equal(t, c[1], <-b.caused)
	}
	_, err := io.WriteString(typed, "o\nk\n")
	require.NoError(t, err)
	<-b.caused
	cancel()
	<-ended
	require.NoError(t, typed.Close())
	require.Equal(t, 9, strings.Count(out.String(), keysHelp), "at the start, and after each line that is no key")
	require.Contains(t, out.String(), "log in    http://127.0.0.1/link/1\n")
	require.Contains(t, out.String(), "kill-worker: it may fail")
}
