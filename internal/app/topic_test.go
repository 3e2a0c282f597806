package app

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Someone has changed a setting of the topic that only publishing needs. Reading the topic goes on: an audit, a tail,
// and the opening of a shard that Redis has lost. A check before a start still refuses it.
func TestReadersNeedNoSettingOfWriters(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	broker := testkit.Kafka(t)
	for setting, c := range map[string]struct {
		value string
		reads bool
	}{
		"retention.ms": {"3600000", true}, "max.message.bytes": {"60000", true}, "cleanup.policy": {"compact", false},
	} {
		topic := broker.Topic(t, 1, map[string]string{setting: c.value})
		a := onServers(t, "sqlite", filepath.Join(t.TempDir(), "l.db"), "", "HONGBAO_KAFKA_BROKERS="+broker.Addr,
			"HONGBAO_KAFKA_TOPIC="+topic, "HONGBAO_KAFKA_PARTITIONS=1", "HONGBAO_DEPLOYMENT_SINKS=kafka")
		l, err := a.OpenTopic(t.Context())
		if c.reads {
			require.NoError(t, err, setting)
			l.Close()
		} else {
			require.ErrorContains(t, err, setting)
		}
		_, err = a.Check(t.Context())
		require.ErrorContains(t, err, setting, "a worker could not publish")
	}
}
