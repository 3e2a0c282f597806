package store

import (
	"context"
	"time"
)

var onceScript = newDrainScript("once").with(unguarded)

// OnceCall is one step of "push once"; see once.lua for the steps and their answers.
type OnceCall struct {
	Name, ID string
	Do       string // claim, retake, complete or release
	Token    string
	Lease    time.Duration
	Keep     time.Duration
}

// Once takes one step of "push once" and returns the script's answer.
func (k *Shard) Once(ctx context.Context, c *OnceCall) (string, error) {
	reply, err := k.run(ctx, onceScript, []string{k.Keys.Once(c.Name, c.ID)},
		[]any{c.Do, c.Token, c.Lease.Milliseconds(), c.Keep.Milliseconds()})
	if err != nil {
		return "", err
	}
	return one(onceScript, reply, func(s string) (string, error) { return s, nil })
}
