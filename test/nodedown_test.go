package test

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// run runs a command to its end, and gives its exit code and all that it said.
func (s *site) run(args ...string) (code int, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.path, args...)
	cmd.Env = s.env
	out, _ := cmd.CombinedOutput() // the exit code tells
	return cmd.ProcessState.ExitCode(), string(out)
}

// deploymentShard is the shard whose server also has what marks the prefix.
func (s *site) deploymentShard() int {
	s.t.Helper()
	slot, err := s.rdb.ClusterKeySlot(s.t.Context(), s.layout.Deployment()).Result()
	require.NoError(s.t, err)
	return int(slot) * siteShards / 16384
}

// A primary and its replica are down, and with them one shard and the mark of the prefix: grabs, settlement, publication
// and commands of the campaigns on other shards go on, in processes that run and in ones that start now. What needs all
// shards names the one that is away. It comes back, and opens by itself.
func TestANodeDownTouchesItsShardsOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
	s := newSite(t, atRedis(t, configs.Cluster, ""))
	s.ok("init")
	down := s.deploymentShard()
	lost, near, far := s.on(down, "lost"), s.on((down+1)%siteShards, "near"), s.on((down+2)%siteShards, "far")
	for _, id := range []string{lost, near, far} {
		s.create(id, 100, hongbao.DurabilityReplica, "limits:\n  - {by: user, per: campaign, max: 1}\n")
	}
	why := []string{"--by", "ann", "--why", "a test"}
	stop, p := s.work(), s.producer()
	crowds := map[string]*people{}
	for _, id := range []string{lost, near, far} {
		crowds[id] = s.people(p, id)
		crowds[id].grab(t.Context(), 0, 20, 8)
	}
	s.nobodyLost()
	require.NoError(t, s.at.cluster.Masters[down].Kill())
	require.NoError(t, s.at.cluster.Replicas[down].Kill())

	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	crowds[near].grab(ctx, 20, 40, 8)
	fresh := s.people(s.producer(), far)
	fresh.grab(ctx, 20, 40, 8)
	require.NoError(t, ctx.Err(), "grabs on other shards go on, in a producer that begins now as well")
	require.False(t, crowds[lost].once(ctx, user(50)), "one on that shard is undecided")
	stop()
	stop = s.work() // it begins while the node is down
	for _, id := range []string{near, far} {
		testkit.Eventually(t, startTime, func() bool { return s.published(id) == 40 }, "the others' grants are published")
	}

	goOn := [][]string{
		{"grab", near, user(60)}, {"receipts", near, user(1)}, {"campaign", "show", near}, {"campaign", "list"},
		{"campaign", "pause", near}, {"campaign", "resume", near}, {"campaign", "close", near, "--early"}, {"tail"},
	}
	for _, args := range goOn {
		code, text := s.run(args...)
		if code != 0 {
			t.Errorf("%v ends with %d: %s", args, code, text)
		}
	}
	_, text := s.run("campaign", "refund", near)
	amount := regexp.MustCompile(`--amount (\d+)`).FindStringSubmatch(text)
	require.NotNil(t, amount, text)
	s.says([]string{"campaign", "refund", near, "--amount", amount[1], "--wait", "30s"}, "refunded") // so all are settled
	needAll := [][]string{
		append([]string{"sink", "pause", "kafka"}, why...), {"audit"}, {"dead", "list"}, {"recover"}, {"init"},
		{"receipts", lost, user(1)}, {"campaign", "close", lost, "--early"}, {"doctor"}, {"status"}, {"sink", "list"},
	}
	for _, args := range needAll {
		code, text := s.run(args...)
		if code == 0 || !strings.Contains(text, fmt.Sprintf("shard %d", down)) {
			t.Errorf("%v ends with %d and does not name the shard: %s", args, code, text)
		}
	}
	require.NoError(t, s.at.cluster.Masters[down].Restart())
	require.NoError(t, s.at.cluster.Replicas[down].Restart())
	ctx, cancel = context.WithTimeout(t.Context(), 90*time.Second) // all of the above took its time
	defer cancel()
	crowds[lost].grab(ctx, 20, 40, 8)
	require.NoError(t, ctx.Err(), "the shard opens by itself")
	s.ok(append([]string{"sink", "resume", "kafka"}, why...)...)
	for _, crowd := range crowds {
		crowd.right(t)
	}
	s.nobodyLost()
	stop()
}

// A cluster that stops as a whole when a slot has no server is refused, and one of which a slot belongs to no node; with
// unsafe.allow the first one only warns.
func TestClustersThatAreRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a server")
	}
	t.Parallel()
	at := atRedis(t, configs.Cluster, "")
	s := newSite(t, at)
	for _, n := range at.primaries {
		n.Order(t, "CONFIG SET cluster-require-full-coverage yes")
	}
	code, text := s.run("init")
	require.Equal(t, 1, code, text)
	require.Contains(t, text, "set cluster-require-full-coverage no on every node")
	_, text = s.run("doctor")
	require.Contains(t, text, "cluster-require-full-coverage is yes")
	s.env = append(s.env, "HONGBAO_UNSAFE_ALLOW=redis_full_coverage")
	code, text = s.run("init")
	require.Equal(t, 0, code, text)
	require.Contains(t, text, "unsafe.allow: this cluster answers nothing when one of its slots has no server")
	for _, n := range at.primaries {
		n.Order(t, "CONFIG SET cluster-require-full-coverage no")
	}
	slot, err := s.rdb.ClusterKeySlot(t.Context(), s.layout.Shard(1).Meta()).Result()
	require.NoError(t, err)
	for _, n := range at.primaries {
		n.Order(t, fmt.Sprintf("CLUSTER DELSLOTS %d", slot))
	}
	for _, args := range [][]string{{"init"}, {"doctor"}, {"work"}, {"grab", "rain", "ann"}} {
		code, text = s.run(args...)
		require.NotZero(t, code, "%v", args)
		require.Contains(t, text, "1 slots of the cluster belong to no node", "%v", args)
	}
}
