package audit

import (
	"context"
	"fmt"

	"github.com/hongbao-project/hongbao/internal/model"
	"github.com/hongbao-project/hongbao/internal/operate/deadletter"
)

// readLetters reads the dead letters of the sinks, and the letters that a person has dropped. It does not decide
// whether a letter is a difference: judgeSinks does, because the sink may have the grant by now. A sink need not have a
// dropped grant.
func (r *run) readLetters(ctx context.Context) error {
	letters := deadletter.New(r.Store)
	for _, k := range r.sinks {
		for i := range r.shards {
			err := letters.Each(ctx, k.group, i, "", func(page []model.Letter) error {
				for j := range page {
					r.letter(k, &page[j])
				}
				return nil
			})
			if err == nil {
				err = letters.EachResolved(ctx, k.group, i, func(l *deadletter.Resolved) { r.resolved(k, l) })
			}
			if err != nil {
				return fmt.Errorf("dead letters of %s on shard %d: %w", k.group, i, err)
			}
		}
	}
	return nil
}

func (r *run) letter(k *sink, l *model.Letter) {
	detail := "" // stays empty for letters beyond MaxListed
	if len(k.dead[l.Shard]) < r.MaxListed {
		detail = fmt.Sprintf("dead letter %s, entry %.40q: %s after %d attempts: %.300q", l.ID, l.Entry, l.Class, l.Attempts,
			l.Reason)
	}
	if l.Seq > 0 {
		k.dead[l.Shard][l.Seq] = detail
	} else if !r.partial() {
		r.found(model.Difference{Kind: DeadLetter, Where: k.group, Detail: detail + "; the whole entry"})
	}
}

func (r *run) resolved(k *sink, l *deadletter.Resolved) {
	if l.Seq == 0 || l.Decision != model.LetterDropped {
		return
	}
	k.dropped[l.Shard][l.Seq] = fmt.Sprintf("dead letter %.120s was dropped by %.128s: %.200q", l.ID, l.By, l.Why)
	if g, ok := l.Facts(); ok && k.from == inLedger {
		r.decided(&g)
	}
}
