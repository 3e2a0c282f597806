package remote

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao"
)

// keySep stands between the parts of a key; none of them can hold it.
const keySep = ":"

// MaxDeployment is how long a deployment's id may be, so that a key fits into hongbao.MaxIDLength: 54 + 64 + 8 digits + 2.
const MaxDeployment = 54

// Key is the Idempotency-Key and the reference of a grant: deployment, campaign and packet. It is the same for ever,
// whichever worker sends it and whatever became of Redis in between.
func Key(deployment, campaign string, packet int64) string {
	return deployment + keySep + campaign + keySep + strconv.FormatInt(packet, 10)
}

// note is the payload of a claim: under which deployment, and when, its first request was about to be sent.
type note struct {
	first      time.Time
	deployment string
}

func (n note) String() string { return fmt.Sprintf("1 %d %s", n.first.UnixMilli(), n.deployment) }

// readNote reads a claim's payload. What can't be read stops the shard: sending on could pay twice.
func (h *Handler) readNote(claim *hongbao.Claim) (note, error) {
	broken := func(format string, args ...any) (note, error) {
		return note{}, hongbao.Errorf(hongbao.Broken, "open claim %s: %w; it stays for a person, see docs/remote-balance.md", claim.ID,
			fmt.Errorf(format, args...))
	}
	parts := strings.Split(claim.Payload, " ")
	if len(parts) != 3 || parts[0] != "1" {
		return broken("its payload was written by another build")
	}
	ms, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || ms <= 0 {
		return broken("its payload has no time")
	}
	if parts[2] != h.cfg.Deployment {
		return broken("its keys begin with %.80q, ours with %q: deployment.id must never change", parts[2], h.cfg.Deployment)
	}
	return note{time.UnixMilli(ms), parts[2]}, nil
}

// runs makes ranges of seqs.
func runs(seqs []int64) []hongbao.SeqRange {
	slices.Sort(seqs)
	var list []hongbao.SeqRange
	for _, s := range seqs {
		if n := len(list); n > 0 && list[n-1].Last >= s-1 {
			list[n-1].Last = s
		} else {
			list = append(list, hongbao.SeqRange{First: s, Last: s})
		}
	}
	return list
}

func holds(ranges []hongbao.SeqRange, seq int64) bool {
	return slices.ContainsFunc(ranges, func(r hongbao.SeqRange) bool { return r.First <= seq && seq <= r.Last })
}
