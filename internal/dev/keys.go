package dev

import (
	"bufio"
	"context"
	"io"
	"strings"

	"github.com/hongbao-project/hongbao/internal/dev/faults"
	"github.com/hongbao-project/hongbao/internal/dev/local"
	"github.com/hongbao-project/hongbao/internal/front/console"
)

const keysHelp = "Type a key and Enter. k: kill a worker; r: cut off Redis or restore it; c: cut off Kafka or restore it; l: lose " +
	"answers; d: make a dead letter; empty: empty Redis; g CAMPAIGN: let 20 users a second grab there; g: stop them; o: another " +
	"log-in link"

const noKeys = "Keys need a terminal, and standard input is none: to break something use the page of faults, or curl as in " +
	"docs/dev.md#break-something"

// linkKey prints another log-in link. guestsKey starts and stops guests.
const linkKey, guestsKey = "o", "g"

var keyOf = map[string]string{
	faults.KillWorker: "k", faults.LoseAnswers: "l",
	faults.CutRedis: "r", faults.RestoreRedis: "r",
	faults.CutKafka: "c", faults.RestoreKafka: "c",
	faults.RejectGrant: "d", faults.EmptyRedis: "empty",
}

// keys causes the faults that the user selects at the terminal with a letter and Enter.
type keys struct {
	say    local.Say
	faults console.Faults
	link   func() string
	guests *guests
}

// run reads keys until ctx ends, and then stops the guests. A pending read from a terminal can't be canceled, so the reading goroutine may
// live until the process ends.
func (k *keys) run(ctx context.Context, in io.Reader) {
	ignoreBackground()
	defer k.guests.stop()
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
	k.say(keysHelp)
	for {
		select {
		case line := <-lines:
			k.press(ctx, strings.TrimSpace(line))
		case <-ctx.Done():
			return
		}
	}
}

// press causes the fault that belongs to a key, if that fault is possible now, or prints a log-in link.
func (k *keys) press(ctx context.Context, key string) {
	if key == linkKey {
		if link := k.link(); link != "" {
			k.say("log in    %s", link)
			return
		}
	}
	if words := strings.Fields(key); len(words) > 0 && words[0] == guestsKey {
		if !k.guests.press(ctx, words[1:]) {
			k.say(keysHelp)
		}
		return
	}
	for _, fault := range k.faults.Buttons() {
		if keyOf[fault.Name] != key {
			continue
		}
		if err := k.faults.Cause(ctx, fault.Name); err != nil && ctx.Err() == nil {
			k.say("%s: %v", fault.Name, err)
		}
		return
	}
	k.say(keysHelp)
}
