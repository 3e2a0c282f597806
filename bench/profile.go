package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profiled runs a row, and writes a CPU profile of this process to the folder. Without a folder it writes none.
func profiled(folder, row string, run func() error) (err error) {
	if folder == "" {
		return run()
	}
	f, err := os.Create(filepath.Join(folder, row+".pprof"))
	if err != nil {
		return fmt.Errorf("write a profile of row %s: %w", row, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return fmt.Errorf("take a profile of row %s: %w", row, err)
	}
	defer pprof.StopCPUProfile()
	return run()
}

// labelled makes one of the compared runs. It labels the samples of the run, and of all goroutines that the run starts,
// with the run's name: go tool pprof -tagfocus run=NAME. The name must not be a number, because pprof would read it as
// a bound.
func labelled(ctx context.Context, name string, run func(context.Context) error) (err error) {
	pprof.Do(ctx, pprof.Labels("run", name), func(ctx context.Context) { err = run(ctx) })
	return err
}
