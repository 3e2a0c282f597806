package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// lines collects what a process prints.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// outside is examples/outside, built as the module of its own that it is, for a deployment.
type outside struct {
	path, listen string
	env          []string
	out, err     lines
}

func newOutside(t *testing.T, e *ending, broker *testkit.KafkaBroker, topic string) *outside {
	t.Helper()
	o := &outside{path: filepath.Join(t.TempDir(), "outside")}
	build := exec.Command("go", "build", "-o", o.path, ".")
	build.Dir = "../examples/outside"
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o.listen = free.Addr().String()
	require.NoError(t, free.Close())
	o.env = append(os.Environ(), "LISTEN="+o.listen, "REDIS="+testkit.Redis(t).Addr, "KAFKA="+broker.Addr, "TOPIC="+topic,
		"TOPIC_DEAD="+broker.Topic(t, 1, nil), "DEPLOYMENT="+e.prefix, "KEY_PREFIX="+e.prefix)
	return o
}

// start runs the program; stop it with the function that it gives.
func (o *outside) start(t *testing.T) (stop func()) {
	t.Helper()
	cmd := exec.Command(o.path)
	cmd.Env, cmd.Stdout, cmd.Stderr = o.env, &o.out, &o.err
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
	return func() {
		t.Helper()
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, <-ended, o.err.String())
	}
}

// grab asks the program over HTTP until it answers.
func (o *outside) grab(t *testing.T, user string) hongbao.Answer {
	t.Helper()
	var answer hongbao.Answer
	testkit.Eventually(t, 20*time.Second, func() bool {
		resp, err := http.Post("http://"+o.listen+"/grab?campaign=rain&request=r&user="+user, "", nil)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(&answer) == nil
	}, "an answer")
	return answer
}

// What a programmer may build with the public packages alone works: examples/outside grabs, mails, reads the topic, and
// verifies the draw. Each winner is mailed once and read once.
func TestOutsideModule(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a server")
	}
	broker := testkit.Kafka(t)
	topic := broker.Topic(t, 2, map[string]string{"retention.ms": "-1", "unclean.leader.election.enable": "false"})
	e := newEnding(t, "HONGBAO_DEPLOYMENT_SINKS=balance,kafka", "HONGBAO_KAFKA_BROKERS="+broker.Addr,
		"HONGBAO_KAFKA_TOPIC="+topic,
		"HONGBAO_KAFKA_PARTITIONS=2", "HONGBAO_PUBLISHER_REQUEST_TIMEOUT=1500ms", "HONGBAO_PUBLISHER_ATTEMPT_TIME=2s",
		"HONGBAO_PUBLISHER_MAX_CLAIM_AGE=2500ms")
	commitment := regexp.MustCompile(`[0-9a-f]{64}`).FindString(e.ok("campaign", "show", "rain"))
	require.NotEmpty(t, commitment)
	work := e.work()
	o := newOutside(t, e, broker, topic)
	stop := o.start(t)
	var want []string
	for i := range 7 {
		answer := o.grab(t, user(i))
		require.Equal(t, hongbao.OutcomeGranted, answer.Outcome)
		require.Equal(t, answer.Receipts, o.grab(t, user(i)).Receipts, "the same request again has the same receipt")
		want = append(want, fmt.Sprint(user(i), " ", answer.Receipts[0].Packet))
	}
	all := func() bool { return strings.Count(o.out.String(), "\n") >= 2*len(want) }
	testkit.Eventually(t, 60*time.Second, all, "mails and messages: %s", o.err.String())
	stop()
	var mails, messages []string
	for line := range strings.Lines(o.out.String()) {
		line = strings.TrimSpace(line)
		if what, ok := strings.CutPrefix(line, "mail "); ok {
			mails = append(mails, what)
		} else if what, ok := strings.CutPrefix(line, "topic "); ok {
			messages = append(messages, what)
		}
	}
	require.ElementsMatch(t, want, mails)
	require.ElementsMatch(t, want, messages)

	e.ok("campaign", "close", "rain", "--early")
	e.ok("campaign", "refund", "rain", "--amount", fmt.Sprint(e.left()), "--wait", "30s")
	file := e.file("reveal.json", e.ok("campaign", "reveal", "rain"))
	work()
	out, err := exec.Command(o.path, "verify", file, commitment).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, fmt.Sprintln("verified rain", endPackets), string(out))
	out, err = exec.Command(o.path, "verify", file, strings.Repeat("0", 64)).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "exchanged after the start")
}
