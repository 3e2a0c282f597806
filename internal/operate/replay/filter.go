package replay

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/operate/delivery"
)

// Filter selects grants. A zero field matches every grant.
type Filter struct {
	// Shard is one shard; nil means all shards.
	Shard *int `json:"shard,omitempty" doc:"Only grants of the shard with this number. Absent: all shards."`
	// Seqs is a range of seqs of the shard, including both ends.
	Seqs     stream.SeqRange `json:"seqs,omitzero" doc:"Only events of the shard in this range of seqs. Absent: all events."`
	Campaign string          `json:"campaign,omitempty" doc:"Only grants of the campaign with this id. Absent: all campaigns."`
	User     string          `json:"user,omitempty" doc:"Only grants to one user: 'sha256:' and the SHA-256 of the user's id, in hex. Absent: all users."`
	// From and To bound the time of the decision: From <= time < To.
	From time.Time `json:"from,omitzero" doc:"Only grants decided at or after this time. Absent: no bound."`
	To   time.Time `json:"to,omitzero" doc:"Only grants decided before this time. Absent: no bound."`
}

func (f *Filter) check(shards int) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if f.Shard != nil && (*f.Shard < 0 || *f.Shard >= shards) {
		bad("shard %d: the deployment has shards 0 to %d", *f.Shard, shards-1)
	}
	if f.Seqs != (stream.SeqRange{}) {
		if f.Seqs.First < 1 || f.Seqs.Last < f.Seqs.First || f.Seqs.Last > int64(hongbao.MaxAmount) {
			bad("seqs %d to %d: want 1 <= first <= last < 2^53", f.Seqs.First, f.Seqs.Last)
		}
		if f.Shard == nil && shards > 1 {
			bad("seqs %d to %d: give the shard too, each shard has its own seqs", f.Seqs.First, f.Seqs.Last)
		}
	}
	return errors.Join(append(errs, delivery.CheckPick(f.Campaign, f.User, f.From, f.To))...)
}

// Hashed returns the filter with the SHA-256 of the user's id instead of the id.
func (f *Filter) Hashed() Filter {
	out := *f
	if f.User != "" {
		out.User = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(f.User)))
	}
	return out
}

func (f *Filter) onShard(shard int) bool { return f.Shard == nil || *f.Shard == shard }

func (f *Filter) matches(g *hongbao.Grant) bool {
	return f.onShard(g.Shard) && (f.Seqs.Last == 0 || f.Seqs.Has(g.Seq)) &&
		(f.Campaign == "" || g.Campaign == f.Campaign) && (f.User == "" || g.User == f.User) &&
		(f.From.IsZero() || !g.Time.Before(f.From)) && (f.To.IsZero() || g.Time.Before(f.To))
}
