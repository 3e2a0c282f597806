package configs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A password that someone has written into an address reaches no error and no log.
func TestPasswordsInAddressesAreNotShown(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"HONGBAO_REDIS_ADDRS":      "redis://:hunter2@10.0.0.7:6379,user:hunter2@h:1",
		"HONGBAO_KAFKA_BROKERS":    "SASL_SSL://ann:hunter2@10.0.0.7:9092",
		"HONGBAO_SERVE_KEYS":       "https://ann:hunter2@id.test/keys",
		"HONGBAO_TRACING_ENDPOINT": "https://ann:hunter2@collector.test",
		"HONGBAO_SERVE_LISTEN":     "ann:hunter2@10.0.0.7",
	} {
		cfg, err := Load("", []string{name + "=" + value}, nil)
		if err == nil {
			err = cfg.Serve.Check()
		}
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "hunter2", name)
	}
}
