package lua

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed once.lua
var onceSource string

var onceScript = newScript("once", onceSource)

// OnceCall is one step of "push once"; see once.lua for the steps and their answers.
type OnceCall struct {
	Name, ID string
	Do       string // claim, retake, complete or release
	Token    string
	Lease    time.Duration
	Keep     time.Duration
}

// Once takes one step of "push once" and returns the script's answer.
func Once(ctx context.Context, rdb redis.Scripter, k Keys, c *OnceCall) (string, error) {
	reply, err := onceScript.run(ctx, rdb, []string{k.Once(c.Name, c.ID)},
		[]any{c.Do, c.Token, c.Lease.Milliseconds(), c.Keep.Milliseconds()})
	if err != nil {
		return "", err
	}
	return one(onceScript, reply, func(s string) (string, error) { return s, nil })
}
