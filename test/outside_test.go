package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// outside is a running examples/outside, which is built as a separate module.
type outside struct {
	path, listen string
	env          []string
	*testkit.Program
}

func newOutside(t *testing.T, e *ending, broker *testkit.KafkaBroker, topic string) *outside {
	t.Helper()
	o := &outside{path: filepath.Join(t.TempDir(), "outside"), listen: testkit.FreeAddr(t)}
	build := exec.Command("go", "build", "-ldflags=-w", "-o", o.path, ".")
	build.Dir = "../examples/outside"
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	o.env = append(os.Environ(), "LISTEN="+o.listen, "REDIS="+testkit.Redis(t).Addr, "KAFKA="+broker.Addr, "TOPIC="+topic,
		"TOPIC_DEAD="+broker.Topic(t, 1, nil), "DEPLOYMENT="+e.prefix, "KEY_PREFIX="+e.prefix)
	return o
}

func (o *outside) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command(o.path)
	cmd.Env = o.env
	o.Program = testkit.StartProgram(t, cmd)
}

func (o *outside) stop(t *testing.T) {
	t.Helper()
	o.Signal(syscall.SIGTERM)
	require.Zero(t, o.Wait(time.Minute), o.Err.String())
}

// grab sends the request to the program over HTTP until it answers.
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

// examples/outside uses only public packages. It grabs, mails winners, reads the topic and verifies the draw. It mails
// each winner once, and reads each grant once.
func TestOutsideModule(t *testing.T) {
	t.Parallel()
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
	o.start(t)
	var want []string
	for i := range 7 {
		answer := o.grab(t, user(i))
		require.Equal(t, hongbao.OutcomeGranted, answer.Outcome)
		require.Equal(t, answer.Receipts, o.grab(t, user(i)).Receipts, "a repeated request gets the same receipt")
		want = append(want, fmt.Sprint(user(i), " ", answer.Receipts[0].Packet))
	}
	all := func() bool { return strings.Count(o.Out.String(), "\n") >= 2*len(want) }
	testkit.Eventually(t, 60*time.Second, all, "mails and messages: %s", o.Err.String())
	o.stop(t)
	var mails, messages []string
	for line := range strings.Lines(o.Out.String()) {
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
