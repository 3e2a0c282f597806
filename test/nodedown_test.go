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
	"github.com/hongbao-project/hongbao/internal/base/walk"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// run runs a command, and returns its exit code and its whole output.
func (s *site) run(args ...string) (code int, text string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.path, args...)
	cmd.Env = s.env
	out, _ := cmd.CombinedOutput() // the caller checks the exit code
	return cmd.ProcessState.ExitCode(), string(out)
}

// deploymentShard returns the shard on whose server the deployment's key is.
func (s *site) deploymentShard() int {
	s.t.Helper()
	slot, err := s.rdb.ClusterKeySlot(s.t.Context(), s.store.Deployment()).Result()
	require.NoError(s.t, err)
	return int(slot) * siteShards / 16384
}

// firstPlaces returns a new user for each place of a campaign over all shards. The walk of that user begins at this
// place.
func (s *site) firstPlaces(id string) []string {
	users := make([]string, siteShards)
	course := walk.NewCourse(id, siteShards, 1)
	for i, found := 100, 0; found < siteShards; i++ {
		var w walk.Walk
		if w.Begin(course, user(i), "r"); users[w.Place()] == "" {
			users[w.Place()] = user(i)
			found++
		}
	}
	return users
}

// byAnn has the required flags of commands that change a sink.
var byAnn = []string{"--by", "ann", "--why", "a test"}

// commandsWhileDown checks commands while a shard is down. Commands about a campaign on another shard work. Commands
// that need the shard fail, and their error names it.
func (s *site) commandsWhileDown(down int, lost, near string) {
	s.t.Helper()
	goOn := [][]string{
		{"grab", near, user(60)}, {"receipts", near, user(1)}, {"campaign", "show", near}, {"campaign", "list"},
		{"campaign", "pause", near, "--by", "ann", "--why", "test"}, {"campaign", "resume", near, "--by", "ann", "--why", "test"},
		{"campaign", "close", near, "--early"}, {"tail"},
	}
	for _, args := range goOn {
		code, text := s.run(args...)
		if code != 0 {
			s.t.Errorf("%v ends with %d: %s", args, code, text)
		}
	}
	_, text := s.run("campaign", "refund", near)
	amount := regexp.MustCompile(`--amount (\d+)`).FindStringSubmatch(text)
	require.NotNil(s.t, amount, text)
	s.says([]string{"campaign", "refund", near, "--amount", amount[1], "--wait", "30s"}, "refunded")
	needAll := [][]string{
		append([]string{"sink", "pause", "kafka"}, byAnn...), {"audit"}, {"dead", "list"}, {"recover"}, {"init"},
		{"receipts", lost, user(1)}, {"campaign", "close", lost, "--early"}, {"doctor"}, {"status"}, {"sink", "list"},
	}
	for _, args := range needAll {
		code, text := s.run(args...)
		if code == 0 || !strings.Contains(text, fmt.Sprintf("shard %d", down)) {
			s.t.Errorf("%v ends with %d and does not name the shard: %s", args, code, text)
		}
	}
}

// A primary and its replica are down, so one shard and the deployment's key can't be reached. On other shards, grabs,
// settlement, publication and commands continue, in running and in new processes. Commands that need all shards name
// the missing one. When the nodes are back, the shard opens without a person.
func TestANodeDownTouchesItsShardsOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t, atRedis(t, configs.Cluster, ""))
	s.ok("init")
	down := s.deploymentShard()
	lost, near, far := s.on(down, "lost"), s.on((down+1)%siteShards, "near"), s.on((down+2)%siteShards, "far")
	for _, id := range []string{lost, near, far} {
		s.create(id, 100, hongbao.DurabilityReplica, oneEach)
	}
	wide := s.on(down, "wide")
	s.create(wide, 100, hongbao.DurabilityReplica, fmt.Sprintf("shards: %d\n%s", siteShards, oneEach))
	stop, p := s.work(), s.producer()
	crowds := map[string]*people{}
	for _, id := range []string{lost, near, far, wide} {
		crowds[id] = s.people(p, id)
		crowds[id].grab(t.Context(), 0, 20, 8)
	}
	s.allAgree()
	require.NoError(t, s.at.cluster.Masters[down].Kill())
	require.NoError(t, s.at.cluster.Replicas[down].Kill())

	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	crowds[near].grab(ctx, 20, 40, 8)
	fresh := s.people(s.producer(), far)
	fresh.grab(ctx, 20, 40, 8)
	require.NoError(t, ctx.Err(), "grabs on other shards continue, also in a producer that starts now")
	require.False(t, crowds[lost].once(ctx, user(50)), "a grab on that shard is undecided")
	first := s.firstPlaces(wide)
	require.False(t, crowds[wide].once(ctx, first[0]), "a grab whose first place is on that shard is undecided")
	testkit.Eventually(t, startTime, func() bool { return crowds[wide].once(ctx, first[1]) }, "other grabs continue")
	late := s.people(s.producer(), wide)
	require.False(t, late.once(ctx, first[2]), "a new producer can't learn over which shards the campaign is")
	require.Empty(t, late.granted)
	require.NoError(t, late.failed)
	stop()
	stop = s.work() // a worker can start while the node is down
	for _, id := range []string{near, far} {
		testkit.Eventually(t, startTime, func() bool { return s.published(id) == 40 }, "the others' grants are published")
	}

	s.commandsWhileDown(down, lost, near)
	require.NoError(t, s.at.cluster.Masters[down].Restart())
	require.NoError(t, s.at.cluster.Replicas[down].Restart())
	ctx, cancel = context.WithTimeout(t.Context(), 4*time.Minute) // the earlier context may have expired
	defer cancel()
	crowds[lost].grab(ctx, 20, 40, 8)
	require.NoError(t, ctx.Err(), "the shard opens automatically")
	testkit.Eventually(t, startTime, func() bool { return late.once(ctx, first[2]) }, "it learns it later")
	s.ok(append([]string{"sink", "resume", "kafka"}, byAnn...)...)
	for _, crowd := range crowds {
		crowd.right(t)
	}
	s.allAgree()
	stop()
}

// A cluster that answers nothing while a slot has no server is refused, and so is a cluster with an unassigned slot.
// With unsafe.allow the first case is only a warning. For a running producer, grabs on the shard of the unassigned slot
// are undecided until a node gets the slot. Other shards continue.
func TestClustersThatAreRefused(t *testing.T) {
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
	require.Contains(t, text, "unsafe.allow: this cluster answers nothing while one of its slots has no server")
	for _, n := range at.primaries {
		n.Order(t, "CONFIG SET cluster-require-full-coverage no")
	}
	p := s.producer()
	crowds := make([]*people, 2) // on shards 0 and 1
	for i := range crowds {
		id := s.on(i, "rain")
		s.create(id, 10, hongbao.DurabilityFast, oneEach)
		crowds[i] = s.people(p, id)
		testkit.Eventually(t, startTime, func() bool { return crowds[i].once(t.Context(), user(1)) }, "shard %d answers", i)
	}
	slot := s.slotOf(1)
	for _, n := range at.primaries {
		n.Order(t, fmt.Sprintf("CLUSTER DELSLOTS %d", slot))
	}
	require.False(t, crowds[1].once(t.Context(), user(2)))
	testkit.Eventually(t, startTime, func() bool { return crowds[0].once(t.Context(), user(2)) }, "the other shard answers")
	for _, args := range [][]string{{"init"}, {"doctor"}, {"work"}, {"grab", "rain", "ann"}} {
		code, text = s.run(args...)
		require.NotZero(t, code, "%v", args)
		require.Contains(t, text, "1 slots of the cluster belong to no node", "%v", args)
	}
	for _, n := range at.primaries {
		n.Order(t, fmt.Sprintf("CLUSTER SETSLOT %d NODE %s", slot, at.primaries[1].Order(t, "CLUSTER MYID")))
	}
	for i, crowd := range crowds {
		testkit.Eventually(t, startTime, func() bool { return crowd.once(t.Context(), user(2)) }, "shard %d answers", i)
		crowd.right(t)
	}
}
