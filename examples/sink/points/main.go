// Command points is the program hongbao with the sink of package sink as one more sink of the deployment. Its
// configuration needs the name in deployment.sinks, and own.points.program:
//
//	deployment: {sinks: [balance, kafka, points]}
//	own:
//	  points: {program: points of team CRM}
//
// `points work --sink=points` delivers to it. docs/sinks.md explains what else the program can do.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/hongbao-project/hongbao"
	"github.com/hongbao-project/hongbao/command"
	"github.com/hongbao-project/hongbao/examples/sink"
)

func main() {
	command.Main(command.Sink{Name: "points", Open: func(ctx context.Context) (hongbao.Handler, error) {
		file := os.Getenv("POINTS_FILE")
		if file == "" {
			return nil, errors.New("POINTS_FILE is not set: it names the file of the database with the points")
		}
		return sink.Open(ctx, file)
	}})
}
