package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/configs"
)

// Every log line that docs/operations.md tells to alert on is written somewhere, and its Deployment waits for the drain.
func TestOperationsAreTrue(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	var code strings.Builder
	sources(t, []string{".go"}, func(file string) {
		if strings.HasSuffix(file, "_test.go") {
			return
		}
		text, err := os.ReadFile(filepath.Join("..", file))
		require.NoError(t, err)
		code.Write(text)
	})
	rows := regexp.MustCompile("(?m)^\\| .*level `(error|warn)`.*$").FindAllString(string(page), -1)
	require.GreaterOrEqual(t, len(rows), 5)
	for _, row := range rows {
		alert, _, _ := strings.Cut(row[2:], "|")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(alert, -1) {
			said := strings.TrimPrefix(m[1], "... ")
			require.True(t, said == "error" || said == "warn" || strings.Contains(code.String(), said), "nothing logs %q", said)
		}
	}
	cfg, err := configs.Load("", nil, nil)
	require.NoError(t, err)
	grace := regexp.MustCompile(`terminationGracePeriodSeconds: (\d+)`).FindStringSubmatch(string(page))
	require.Len(t, grace, 2)
	seconds, err := strconv.Atoi(grace[1])
	require.NoError(t, err)
	require.Greater(t, time.Duration(seconds)*time.Second, cfg.Consumer.DrainTimeout+10*time.Second)
}
