package configs

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
)

// Each sink of the user's own has its own settings, from the file and from variables.
func TestOwnSinks(t *testing.T) {
	t.Parallel()
	c := (&input{yaml: `
deployment: {id: shop, sinks: [balance, points, stamps]}
own:
  points: {program: points-worker of team CRM, blocks_grabs: true, max_calls: 3}
  stamps: {program: stamps}
`, env: []string{"HONGBAO_OWN_STAMPS_MAX_ATTEMPTS=4"}}).must(t)
	require.Equal(t, 3, c.ConsumerConfig("points").MaxCalls)
	require.Equal(t, int64(4), c.ConsumerConfig("stamps").MaxAttempts)
	require.Equal(t, []string{"balance", "points", "stamps"}, c.TrimmerConfig().Groups)
	require.Equal(t, []string{"stamps"}, c.TrimmerConfig().MayLag)
	require.Equal(t, []string{"points", "stamps"}, c.UnreadSinks())
	require.True(t, c.IsOwn("points"))
	require.False(t, c.IsOwn("balance"))

	require.Equal(t, []string{"balance"}, c.Opened())
	_, err := c.OpenOwn("points")
	require.ErrorContains(t, err, "sink points is delivered by points-worker of team CRM")
	c.Handlers = map[string]OpenHandler{"points": func(context.Context) (hongbao.Handler, error) { return nil, nil }} //nolint:nilnil // is not called
	require.Equal(t, []string{"balance", "points"}, c.Opened())
	open, err := c.OpenOwn("points")
	require.NoError(t, err)
	require.NotNil(t, open)
}

// A wrong sink of the user's own gets an error that names the setting.
func TestOwnSinksRefused(t *testing.T) {
	t.Parallel()
	for yaml, want := range map[string]string{
		"deployment: {sinks: [balance, points]}": `"points" does not exist: want balance, kafka, or a name for which ` +
			"webhook.points.url or own.points.program is set",
		"deployment: {sinks: [balance, points]}\nown: {points: {blocks_grabs: true}}":                         "own.points.program",
		"deployment: {sinks: [balance]}\nown: {points: {program: p}}":                                         "deployment.sinks does not name it: add points",
		"own: {kafka: {program: p}}":                                                                          "the name kafka is that of another sink",
		"own: {Points: {program: p}}":                                                                         "a sink can't have this name",
		"deployment: {sinks: [balance, points]}\nown: {points: {program: p, url: x}}":                         "there is no such key",
		"deployment: {sinks: [balance, crm]}\nown: {crm: {program: p}}\nwebhook: {crm: {url: 'https://a.b'}}": "webhook.crm has the same name",
		"deployment: {sinks: [balance, points]}\nown: {points: {program: p, max_attempts: 1}}":                "own.points.max_attempts",
	} {
		_, err := (&input{yaml: yaml}).load(t)
		require.ErrorContains(t, err, want, yaml)
	}
}
