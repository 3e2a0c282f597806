package cli

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/testkit"
)

// A deployment without a ledger also has workers, which publish its grants.
func TestWorkWithoutALedger(t *testing.T) {
	t.Parallel()
	d := setup(t, options{kafka: true})
	d.campaign("rain", 10, 1000)
	d.set("DEPLOYMENT_SINKS", "kafka", "LEDGER_DSN", "")
	w := d.start("work")
	w.says(`"working"`)
	require.Equal(t, 5, d.crowdOf("rain", 0, 5))
	testkit.Eventually(t, 30*time.Second, func() bool { return len(d.records()) == 5 }, "all are published")
	w.stop(syscall.SIGTERM)
}

// A second deployment has a copy of the first one's configuration and the same id, but its own Redis and ledger. It
// publishes nothing to the first deployment's topic.
func TestASecondDeploymentWithTheSameID(t *testing.T) {
	t.Parallel()
	first := setup(t, options{kafka: true})
	second := setup(t, options{kafka: true, redis: testkit.NewRedis(t, testkit.RedisOptions{})})
	for _, d := range []*deployment{first, second} {
		d.topic = first.topic
		d.set("KAFKA_TOPIC", first.topic)
	}
	second.set("DEPLOYMENT_ID", first.id(), "DEPLOYMENT_KEY_PREFIX", "copy", "LEDGER_DSN", filepath.Join(t.TempDir(), "copy.db"))
	second.ok("init")
	first.campaign("rain", 10, 1000)
	second.campaign("rain", 10, 1000)
	for _, user := range []string{"u1", "u2"} {
		first.ok("grab", "rain", user)
		second.ok("grab", "rain", user)
	}
	w := first.start("work")
	testkit.Eventually(t, 30*time.Second, func() bool { return len(first.records()) == 2 }, "the first one publishes")
	copied := second.start("work")
	copied.says("has records of another deployment with the same id")
	require.Len(t, first.records(), 2, "the second one publishes nothing")
	w.stop(syscall.SIGTERM)
	copied.Signal(syscall.SIGTERM)
	copied.wait(30 * time.Second)
}
