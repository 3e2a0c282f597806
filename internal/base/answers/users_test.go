package answers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Files that answer over HTTP or print --json must write JSON with this package. Each exception writes JSON that
// contains no time of its own.
func TestAnswersAreWrittenHere(t *testing.T) {
	t.Parallel()
	exceptions := map[string]string{
		"../../front/control/change.go": "wraps an answer that this package wrote",
		"../../front/serve/write.go":    "one text",
		"../../cli/journal.go":          "details of an entry, which are stored as JSON",
	}
	for _, dir := range []string{"../../front/web", "../../front/control", "../../front/serve", "../../front/bank", "../../cli"} {
		files, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			writes := strings.Contains(string(text), "json.Marshal(") || strings.Contains(string(text), "json.NewEncoder(")
			require.Equal(t, exceptions[file] != "", writes, "%s: write answers with internal/base/answers", file)
		}
	}
}
