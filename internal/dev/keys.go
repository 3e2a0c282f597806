package dev

import (
	"bufio"
	"context"
	"io"
	"strings"

	"github.com/hongbao-project/hongbao/internal/dev/faults"
	"github.com/hongbao-project/hongbao/internal/dev/local"
)

const keysHelp = "Type k, r, c or l and Enter: kill a worker, cut off Redis or restore it, cut off Kafka or restore it, lose answers"

// keys cause faults. Each key is a letter and Enter.
type keys struct {
	tell  *local.Teller
	cause func(ctx context.Context, fault string) error
	// cut reports whether the server of a fault is cut off.
	cut func(fault string) bool
}

// run reads keys until ctx ends. A read from a terminal can't be stopped: a last read ends with the process.
func (k *keys) run(ctx context.Context, in io.Reader) error {
	ignoreBackground()
	lines := make(chan string)
	go func() {
		for s := bufio.NewScanner(in); s.Scan(); {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	k.tell.Say(keysHelp)
	for {
		select {
		case line := <-lines:
			k.press(ctx, strings.TrimSpace(line))
		case <-ctx.Done():
			return nil
		}
	}
}

func (k *keys) press(ctx context.Context, key string) {
	var fault string
	switch key {
	case "k":
		fault = faults.KillWorker
	case "c":
		if fault = faults.CutKafka; k.cut(fault) {
			fault = faults.RestoreKafka
		}
	case "r":
		if fault = faults.CutRedis; k.cut(fault) {
			fault = faults.RestoreRedis
		}
	case "l":
		fault = faults.LoseAnswers
	default:
		k.tell.Say(keysHelp)
		return
	}
	if err := k.cause(ctx, fault); err != nil && ctx.Err() == nil {
		k.tell.Say("%s: %v", fault, err)
	}
}
