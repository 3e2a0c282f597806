package simulation_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	planted = flag.Bool("planted", false, "TestPlanted: run the simulator with each planted bug")
	only    = flag.String("only", "", "TestPlanted: only the patch of this name")
)

// caughtWithin says within how many histories the simulator catches each planted bug. 0: it can't;
// docs/design/simulation.md says why, and which test does.
var caughtWithin = map[string]int{
	"ack_before_deliver":        5,
	"claim_released_unread":     20,
	"done_bits_lost":            0,
	"done_bits_not_read":        0,
	"epoch_unchecked":           0,
	"evidence_not_sent":         40,
	"frozen_unchecked":          0,
	"lease_not_renewed":         80,
	"ledger_not_asked":          30,
	"letter_resolved_first":     120,
	"limit_not_checked":         5,
	"look_back_finds_nothing":   10,
	"no_primary_key_check":      40,
	"nothing_put_back":          60,
	"offset_before_effect":      180,
	"owes_everything":           120,
	"put_back_stays_in_stock":   20,
	"receipts_not_put_back":     20,
	"refund_before_settled":     120,
	"replay_believes_done_bits": 120,
	"repeats_counted":           5,
	"replay_reads_no_topic":     120,
	"request_not_recognised":    5,
	"same_log_unchecked":        450,
	"seen_not_asked":            180,
	"serve_forgets_request":     60,
	"server_unchecked":          0,
	"session_kept":              0,
	"thinned_forgotten":         240,
	"told_before_registered":    0,
	"topic_not_marked":          30,
	"unknown_is_done":           10,
	"webhook_waits_for_nobody":  60,
	"withholds_nothing":         80,
}

func patches(t *testing.T) (names []string) {
	files, err := filepath.Glob("testdata/planted/*.patch")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(f), ".patch"))
	}
	return names
}

// git runs git in a folder.
func git(t *testing.T, folder string, args ...string) string {
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(folder))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "git %s: %s", strings.Join(args, " "), out)
	return string(out)
}

// Each planted bug applies to the present source, and the page tells what becomes of it.
func TestPlantedBugsApply(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/design/simulation.md")
	require.NoError(t, err)
	root := sourceCopy(t)
	for _, name := range patches(t) {
		patch, err := filepath.Abs(filepath.Join("testdata", "planted", name+".patch"))
		require.NoError(t, err)
		git(t, root, "apply", "--check", patch)
		require.Contains(t, caughtWithin, name)
		within := "no"
		if n := caughtWithin[name]; n > 0 {
			within = strconv.Itoa(n)
		}
		require.Contains(t, string(page), fmt.Sprintf("| %s | %s |", name, within))
	}
	require.Len(t, caughtWithin, len(patches(t)))
}

// sourceCopy copies the source to a folder of its own.
func sourceCopy(t *testing.T) string {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	to := filepath.Join(t.TempDir(), "source")
	list := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	for _, file := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) || slices.Contains([]string{"docs", "deploy"}, strings.Split(file, "/")[0]) {
			continue
		}
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(to, filepath.Dir(file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(to, file), text, 0o600))
	}
	return to
}

var firstFailure = regexp.MustCompile(`(?m)^(\d+) histories, (\d+) failed`)

// TestPlanted runs the simulator with one planted bug after another; `make planted` calls it.
func TestPlanted(t *testing.T) {
	if !*planted {
		return
	}
	root := sourceCopy(t)
	for _, name := range patches(t) {
		if *only != "" && *only != name {
			continue
		}
		t.Run(name, func(t *testing.T) {
			patch, err := filepath.Abs(filepath.Join("testdata", "planted", name+".patch"))
			require.NoError(t, err)
			git(t, root, "apply", patch)
			defer git(t, root, "apply", "--reverse", patch)
			limit := caughtWithin[name]
			if *most > 0 {
				limit = *most
			}
			if limit == 0 {
				fmt.Printf("%-28s is not for the simulator\n", name)
				return
			}
			n, caught := runPlanted(t, root, limit)
			fmt.Printf("%-28s caught %t, after %d histories\n", name, caught, n)
			require.True(t, caught, "not within %d histories", limit)
		})
	}
}

func runPlanted(t *testing.T, root string, limit int) (histories int, caught bool) {
	first := max(*seed, 1)
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-count=1", "-timeout", "60m", "-run", "^TestSimulate$",
		"-v", "./internal/simulation", "-args", "-seconds", "3600", "-histories", strconv.Itoa(limit), "-stop", "-seed",
		strconv.FormatUint(first, 10), "-keep", filepath.Join(t.TempDir(), "keep"))
	cmd.Dir = root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if m := firstFailure.FindStringSubmatch(out.String()); m != nil {
		histories, _ = strconv.Atoi(m[1])
		return histories, m[2] != "0"
	}
	if strings.Contains(out.String(), "virtual time") || strings.Contains(out.String(), "panic") {
		return strings.Count(out.String(), "virtual s"), true
	}
	require.NoError(t, err, "%.4000s", out.String())
	return 0, false
}
