package deadletter_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func idsOf(page []model.Letter) string {
	var ids []string
	for _, l := range page {
		ids = append(ids, fmt.Sprintf("%d-%d", l.Shard, l.Seq))
	}
	return strings.Join(ids, " ")
}
