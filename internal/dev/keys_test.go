package dev

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/dev/faults"
	"github.com/hongbao-project/hongbao/internal/dev/local"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	caused := make(chan string)
	cut := map[string]bool{}
	k := &keys{tell: local.NewTeller(&out), cut: func(fault string) bool { return cut[fault] }, cause: func(_ context.Context, fault string) error {
		cut[fault] = true
		caused <- fault
		return errors.New("it may fail")
	}}
	in, typed := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.run(ctx, in) }()
	for _, c := range [][2]string{{"k", faults.KillWorker}, {"c", faults.CutKafka}, {" c ", faults.RestoreKafka}, {"r", faults.CutRedis}, {"r", faults.RestoreRedis}, {"l", faults.LoseAnswers}} {
		_, err := io.WriteString(typed, "\n"+c[0]+"\n")
		require.NoError(t, err)
		require.Equal(t, c[1], <-caused)
	}
	cancel()
	require.NoError(t, <-ended)
	require.NoError(t, typed.Close())
	require.Contains(t, out.String(), keysHelp)
	require.Contains(t, out.String(), "kill-worker: it may fail")
}
