// Package command is the program hongbao, for programs that add sinks of their own. docs/sinks.md explains such sinks and
// their settings.
//
//	func main() {
//		command.Main(command.Sink{Name: "points", Open: open})
//	}
//
// The program has every command of hongbao. Its command `work` also delivers to these sinks, and its commands `dead
// requeue` and `replay` can send to them. The program hongbao itself shows the sinks in its answers, pauses them and
// counts them, but can't send to them.
package command

import (
	"context"
	"fmt"
	"os"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/cli"
	"github.com/hongbao-project/hongbao/internal/configs"
)

// Sink is a sink of your own.
type Sink struct {
	// Name is the sink's name in deployment.sinks: 1 to 32 of a-z 0-9, a letter first.
	Name string
	// Open opens the sink. A worker calls it when it starts, and again after an error, with pauses of up to 30 seconds. An
	// error of hongbao.Outagef says that the sink's system is down; any other error is an alarm. When the worker stops, it
	// calls the handler's method Close, with or without an error as its result, if there is one.
	Open func(ctx context.Context) (hongbao.Handler, error)
}

// Main runs the program with the arguments of the process and these sinks. Then it ends the process. Main panics if a
// sink has no valid name or no Open, or if two sinks have one name.
func Main(sinks ...Sink) {
	own := make(map[string]configs.OpenHandler, len(sinks))
	for _, s := range sinks {
		switch {
		case !knob.IsSink(s.Name) || configs.IsTaken(s.Name):
			panic(fmt.Sprintf("command.Main: a sink of your own can't have the name %q: want 1 to 32 of a-z 0-9, a letter first, "+
				"not balance or kafka", s.Name))
		case s.Open == nil:
			panic(fmt.Sprintf("command.Main: sink %q has no Open", s.Name))
		case own[s.Name] != nil:
			panic(fmt.Sprintf("command.Main: two sinks have the name %q", s.Name))
		}
		own[s.Name] = s.Open
	}
	os.Exit(cli.Main(own))
}
