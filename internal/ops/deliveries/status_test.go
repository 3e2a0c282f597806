package deliveries

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/app"
	"github.com/hongbao-project/hongbao/internal/configs"
	"github.com/hongbao-project/hongbao/internal/store"
)

// InWork counts only the entries in the hands of workers. Parked entries count as pending, but not as in work.
func TestEntriesInHandAreNotTheParkedOnes(t *testing.T) {
	t.Parallel()
	a := &app.App{Config: &configs.Config{}}
	status := Of(a).sinkStatus("kafka", []standing{
		{GroupStatus: store.GroupStatus{Parked: 7, Workers: []store.Worker{{Name: "w1", Seen: time.Second, Holds: 2}}}},
		{GroupStatus: store.GroupStatus{Parked: 1, Workers: []store.Worker{{Name: "w1", Seen: time.Second, Holds: 3}}}},
	})
	require.EqualValues(t, 13, status.Pending)
	require.EqualValues(t, 5, status.InWork())
	require.EqualValues(t, 8, status.Parked)
	require.Len(t, status.Workers, 1)
	require.EqualValues(t, 5, status.Workers[0].Holds)
}
