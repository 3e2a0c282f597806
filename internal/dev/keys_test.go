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
	"github.com/hongbao-project/hongbao/internal/operate/audit"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	caused := make(chan string)
	cut := false
	k := &keys{tell: local.NewTeller(&out), cut: func() bool { return cut }, cause: func(_ context.Context, fault string) error {
		cut = fault == faults.CutKafka
		caused <- fault
		return errors.New("it may fail")
	}}
	in, typed := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.run(ctx, in) }()
	for _, c := range [][2]string{{"k", faults.KillWorker}, {"c", faults.CutKafka}, {" c ", faults.MendKafka}, {"l", faults.LoseAnswers}} {
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

func TestVerdict(t *testing.T) {
	t.Parallel()
	agrees := &audit.Report{Verdict: audit.Agrees, Total: audit.Counts{Funded: 300, GrantedAmount: 100, LeftAmount: 200,
		Granted: 5, InFlight: 2}}
	const grants = "The audit agrees: of 5 grants none is lost, none is paid or in the topic twice, 2 are on their way or newer"
	require.Equal(t, grants+".", verdict(agrees))
	agrees.Campaigns = []audit.CampaignReport{{Currency: "CNY"}, {Currency: "CNY"}}
	require.Equal(t, grants+"; funded 3.00 CNY = granted 1.00 CNY + left 2.00 CNY.", verdict(agrees))
	agrees.Campaigns[1].Currency = "USD"
	require.Equal(t, grants+".", verdict(agrees), "amounts of two currencies make no sum")
	differs := &audit.Report{Verdict: audit.Differs, Found: map[audit.Kind]int64{audit.Lost: 2}}
	require.Equal(t, "The audit found differences: 2 x lost.", verdict(differs))
}
