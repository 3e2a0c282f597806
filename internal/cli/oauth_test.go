package cli

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// unsecured returns a token that Apache Kafka's validator for tests accepts: a JSON Web Token without a signature.
func unsecured(t *testing.T, user string, ends time.Time) string {
	t.Helper()
	part := func(v any) string {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	return part(map[string]any{"alg": "none"}) + "." +
		part(map[string]any{"sub": user, "iat": time.Now().Add(-time.Minute).Unix(), "exp": ends.Unix()}) + "."
}

// A deployment logs in to a broker by OAUTHBEARER. The broker ends each connection after a second, so the worker logs in
// again and again, each time by the token that is then in the file. A wrong token is an outage, and no grant is lost.
func TestOAuthBearerAtABroker(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	const prefix = "listener.name.proxied."
	broker := testkit.NewKafka(t, testkit.KafkaOptions{Proxied: true, Properties: map[string]string{
		"listener.security.protocol.map":        "PLAINTEXT:PLAINTEXT,PROXIED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
		"sasl.enabled.mechanisms":               "OAUTHBEARER",
		prefix + "sasl.enabled.mechanisms":      "OAUTHBEARER",
		prefix + "oauthbearer.sasl.jaas.config": `org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";`,

		prefix + "oauthbearer.connections.max.reauth.ms": "1000",
	}})
	d := setup(t, options{kafka: true, broker: broker, uninitialized: true})
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file+".new", []byte(token), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
	}
	write(unsecured(t, "hongbao", time.Now().Add(time.Hour)))
	d.set("KAFKA_BROKERS", broker.Proxy.Addr, "KAFKA_SASL_MECHANISM", "oauthbearer", "KAFKA_SASL_TOKEN_FILE", file,
		"UNSAFE_ALLOW", "sasl_plain_without_tls")
	d.ok("init")
	d.ok("config", "check", "--connect")
	d.campaign("rain", 10, 1_000)
	d.ok("grab", "rain", "u1")
	w := d.start("work")
	d.quiet()
	require.Len(t, parse(t, d.ok("tail")), 1)

	write(unsecured(t, "hongbao", time.Now().Add(-time.Minute)))
	r := d.run("tail")
	require.Equal(t, exitOutage, r.code, r.err)
	require.Contains(t, r.err, "rejects the token of "+file)
	testkit.Eventually(t, 30*time.Second, func() bool {
		d.run("grab", "rain", "u2")
		return strings.Contains(w.Err.String(), "rejects the token of "+file)
	}, "the worker has to log in again")
	write(unsecured(t, "hongbao", time.Now().Add(time.Hour)))
	d.quiet()
	require.Len(t, parse(t, d.ok("tail")), 2)
	w.stop(syscall.SIGTERM)
}
