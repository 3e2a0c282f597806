package cli

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/access"
	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/ops/campaigns"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// One of two controls is killed with SIGKILL in the middle of a replay, in a rain, and started again. Users grab as if
// nothing had happened. The page of the job is on every control, and says that the job has ended with its process. An
// order of the same replay at the other control goes on with it. All totals are exact afterwards.
func TestControlIsKilledInARain(t *testing.T) {
	t.Parallel()
	d := setup(t, options{postgres: true})
	const packets, wave = 10_000, 20
	d.campaign("rain", packets, 1_000_000)
	require.Equal(t, 100, d.crowdOf("rain", 0, 100)) // to be replayed
	w := d.start("work")
	d.quiet()
	key := d.key("treasurer")
	g, asked := d.serve(), 0
	ask := func() { // ten users win, and one of them asks again
		t.Helper()
		for i := range 11 {
			status, answer := g.call("POST", "/v1/campaigns/rain/grabs", "k1", fmt.Sprint("h", asked+i%10), "{}")
			require.Equal(t, http.StatusOK, status, answer)
		}
		asked += 11
	}
	ask()
	first, base1, _ := d.control()
	_, base2, _ := d.control()

	over := make(chan struct{})
	granted, rain := d.rain("rain", 100, packets, wave, over)
	goesOn := func(during string) {
		t.Helper()
		before := granted.Load()
		testkit.Eventually(t, 30*time.Second, func() bool { return granted.Load() >= before+2*wave }, "users grab %s", during)
	}

	slow := (&administrator{t, base1, key}).begin("/v1/replays/again", `{"to": "balance", "rate": 1}`)
	var job string
	testkit.Eventually(t, 30*time.Second, func() bool {
		_, list := (&visitor{t, base2, key}).ask(http.MethodGet, "/jobs")
		if found := regexp.MustCompile(`href="(/jobs/[A-Z0-9]+)"`).FindStringSubmatch(list); found != nil {
			job = found[1]
		}
		return job != ""
	}, "the other control lists the job")
	for _, base := range []string{base1, base2} {
		(&visitor{t, base, key}).sees(job, "The job is running.")
	}
	goesOn("while the replay runs")
	first.Kill()
	require.Error(t, <-slow, "its control was killed before it had answered")
	goesOn("while its control is dead")
	ask()
	_, base1, _ = d.control()
	for _, base := range []string{base1, base2} {
		testkit.Eventually(t, access.JobLost+30*time.Second, func() bool {
			_, page := (&visitor{t, base, key}).ask(http.MethodGet, job)
			return regexp.MustCompile(`The job has ended with its process[^<]*Start it again`).MatchString(page)
		}, "the job's page says that it has ended")
	}
	goesOn("after the restart")
	ask()

	var done struct {
		Report struct{ Matched, Before, Delivered, There int64 }
	}
	require.Equal(t, http.StatusOK, (&administrator{t, base2, key}).post("/v1/replays/again", `{"to": "balance"}`, "again", &done))
	close(over)
	require.NoError(t, <-rain)
	require.Positive(t, done.Report.Before, "it goes on where the killed one had come")
	require.Equal(t, done.Report.Matched, done.Report.Before+done.Report.Delivered+done.Report.There)
	d.quiet()
	won := 130 + granted.Load()
	for _, base := range []string{base1, base2} {
		(&administrator{t, base, key}).totals(int64(asked), won)
	}
	w.stop(syscall.SIGTERM)
	r := d.agrees(int(won))
	require.Zero(t, r.Total.DoubleCredits+r.Total.Lost)
}

// rain lets waves of users from number from to number to grab, two a second, until over is closed. It counts their grants.
func (d *deployment) rain(id string, from, to, wave int, over <-chan struct{}) (granted *atomic.Int64, ended <-chan error) {
	granted = &atomic.Int64{}
	failed := make(chan error, 1)
	go func() {
		for ; from+wave <= to; from += wave {
			select {
			case <-over:
				failed <- nil
				return
			case <-time.After(500 * time.Millisecond):
			}
			got, err := d.grabs(id, from, wave)
			if granted.Add(int64(got)); err != nil {
				failed <- err
				return
			}
		}
		failed <- errors.New("the rain was over too early")
	}()
	return granted, failed
}

// totals requires what campaign rain counts: no total has lost or counted twice what happened while a control was dead.
func (a *administrator) totals(asked, won int64) {
	a.t.Helper()
	var shown campaigns.Shown
	testkit.Eventually(a.t, 10*time.Second, func() bool { // servers store their answers each second
		a.get("/v1/campaigns/rain", &shown)
		return shown.Answers.Total >= asked
	}, "the answers are stored")
	require.Equal(a.t, asked, shown.Answers.Total)
	require.Equal(a.t, won, shown.Redis.Granted)
	require.Equal(a.t, []model.Finished{{Sink: "balance", Done: won}}, shown.Redis.Sinks)
}

// get reads a path. It requires the status 200.
func (a *administrator) get(path string, to any) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, a.url+path, http.NoBody)
	require.NoError(a.t, err)
	req.Header.Set("Authorization", "Bearer "+a.key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(a.t, err)
	defer res.Body.Close()
	require.Equal(a.t, http.StatusOK, res.StatusCode)
	require.NoError(a.t, json.NewDecoder(res.Body).Decode(to))
}

// begin sends a request like post, once, and returns at once. The channel gets the error of a request without an answer.
func (a *administrator) begin(path, body string) <-chan error {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodPost, a.url+path, strings.NewReader(body))
	require.NoError(a.t, err)
	req.Header.Set("Authorization", "Bearer "+a.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", rand.Text())
	failed := make(chan error, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			err = res.Body.Close()
		}
		failed <- err
	}()
	return failed
}
