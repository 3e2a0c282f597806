package dedup

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/deployment"
	"github.com/hongbao-project/hongbao/internal/base/stream"
	"github.com/hongbao-project/hongbao/internal/store"
)

// OnceConfig configures Once.
type OnceConfig struct {
	// Deployment is where the ids are remembered.
	Deployment *deployment.Deployment
	// Name is a namespace for the message ids, such as "sms".
	Name string
	// Lease is how long a push may take, by the Redis clock.
	Lease time.Duration
	// Keep is the retention: how long a message id is remembered. It must not be shorter than the lease.
	Keep time.Duration
}

// Once pushes each message once, by its id. For example, several subscribers can push the same messages to one front
// end. It is safe for concurrent use, by any number of processes. No method waits for replicas or the disk: if Redis
// loses an id, for example by a failover to a lagging replica, the message is Free again.
type Once struct {
	cfg   OnceConfig
	store *store.Store
}

// ErrFenced says that the caller no longer has the claim: another caller has taken it over, or it no longer exists.
var ErrFenced = errors.New("the claim was taken over by another caller")

// State is the state of a message id.
type State string

// The states of a message id. Free means that nobody has claimed the message. Mine means that the caller has the claim
// and must push. Done means that the message was pushed. InProgress means that another caller is pushing it. InDoubt
// means that a caller claimed the message and did not report the result within the lease, so the message may have been
// pushed.
const (
	Free       State = "free"
	Mine       State = "mine"
	Done       State = "done"
	InProgress State = "in_progress"
	InDoubt    State = "in_doubt"
)

// NewOnce returns a Once, or an error for a wrong configuration.
func NewOnce(cfg OnceConfig) (*Once, error) {
	var errs []error
	if cfg.Deployment == nil {
		errs = append(errs, errors.New("Deployment is required"))
	}
	if err := hongbao.CheckCampaignID(cfg.Name); err != nil {
		errs = append(errs, fmt.Errorf("name %q: %w", cfg.Name, err))
	}
	if cfg.Lease < time.Millisecond || cfg.Keep < cfg.Lease || cfg.Keep > 366*24*time.Hour {
		errs = append(errs, fmt.Errorf("lease %s and retention %s: want 1ms <= lease <= retention <= 366 days", cfg.Lease,
			cfg.Keep))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("dedup: push once: %w", errors.Join(errs...))
	}
	return &Once{cfg: cfg, store: cfg.Deployment.Store()}, nil
}

// Claim asks for the right to push message id. token identifies this attempt and must be unique: within the lease, a
// second Claim with the same token also returns Mine.
func (o *Once) Claim(ctx context.Context, id, token string) (State, error) {
	return o.state(o.do(ctx, "claim", id, token))
}

// Retake claims a message that is in doubt. The caller must first ask the receiver whether the message has arrived.
// If Retake returns Mine, the caller pushes the message unless the receiver has it, and then calls Complete. Any
// other state is the same as Claim would return, and the caller must not push.
func (o *Once) Retake(ctx context.Context, id, token string) (State, error) {
	return o.state(o.do(ctx, "retake", id, token))
}

// Complete records that the message was pushed. It returns ErrFenced if the claim does not belong to token.
func (o *Once) Complete(ctx context.Context, id, token string) error {
	return o.fenced(o.do(ctx, "complete", id, token))
}

// Release ends the claim of a message that was certainly not pushed. It returns ErrFenced if the claim does not
// belong to token.
func (o *Once) Release(ctx context.Context, id, token string) error {
	return o.fenced(o.do(ctx, "release", id, token))
}

// Push calls push if the message was not pushed before and no other caller is pushing it. It returns the state
// afterwards: Done, InProgress, InDoubt or Free. A Transient error of push means that nothing was sent, so the message
// is Free again. After any other error, or if the process dies in push, the message is InProgress until the lease is
// over and then in doubt, and Once does not push it again. If push succeeds and Redis does not record that, Push
// returns Done and an error.
//
// The context of push ends with the lease, unless the machine sleeps. If the lease is over before push can begin,
// because the answer of Redis was late or the process was suspended, Push returns InDoubt without a push: another
// caller may have retaken the message.
func (o *Once) Push(ctx context.Context, id, token string, push func(context.Context) error) (State, error) {
	asked := time.Now() // the lease begins later, when Redis gets the claim
	state, err := o.Claim(ctx, id, token)
	if err != nil || state != Mine {
		return state, err
	}
	left := o.cfg.Lease - stream.Age(time.Now(), asked)
	if left <= 0 {
		return InDoubt, nil
	}
	leased, end := context.WithTimeout(ctx, left)
	defer end()
	if err := push(leased); err != nil {
		if hongbao.ClassOf(err) == hongbao.ClassTransient {
			released := o.Release(context.WithoutCancel(ctx), id, token)
			if released == nil {
				return Free, fmt.Errorf("push message %.80q: %w", id, err)
			}
			err = errors.Join(err, released)
		}
		return InDoubt, fmt.Errorf("push message %.80q: %w", id, err)
	}
	return Done, o.Complete(context.WithoutCancel(ctx), id, token)
}

func (o *Once) do(ctx context.Context, step, id, token string) (string, error) {
	if err := errors.Join(hongbao.CheckID(id), hongbao.CheckID(token)); err != nil {
		return "", hongbao.Errorf(hongbao.ClassPermanent, "push once: message id %.80q, token %.80q: %w", id, token, err)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // never fails
	shard := int(h.Sum32() % uint32(o.store.Len()))
	return o.store.Shard(shard).Once(ctx, &store.OnceCall{
		Name: o.cfg.Name, ID: id, Do: step, Token: token, Lease: o.cfg.Lease, Keep: o.cfg.Keep,
	})
}

func (o *Once) state(answer string, err error) (State, error) { return State(answer), err }

func (o *Once) fenced(answer string, err error) error {
	if err == nil && answer != "ok" {
		err = fmt.Errorf("push once: %w", ErrFenced)
	}
	return err
}
