package testkit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// initialize runs a program that creates the data folder of a database server, and waits for it.
func (s *server) initialize(ctx context.Context, k *kit, c command) error {
	run, err := k.start(c)
	if err != nil {
		return err
	}
	select {
	case <-run.done:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("make a %s in %s: %w", s.name, s.dir, ctx.Err()), run.kill())
	}
	if run.err != nil {
		return fmt.Errorf("make a %s in %s: %w; the end of the log:\n%s", s.name, s.dir, run.err, logTail(s.dir))
	}
	return nil
}

// writeSettings writes the configuration file of a database server: the text first and then the settings. The
// server's user owns the file. Later settings win.
func (s *server) writeSettings(path, first string, settings ...map[string]string) error {
	all := map[string]string{}
	for _, more := range settings {
		maps.Copy(all, more)
	}
	var b strings.Builder
	b.WriteString(first)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s = %s\n", name, all[name])
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		return err
	}
	if s.cred == nil {
		return nil
	}
	return os.Chown(path, int(s.cred.Uid), int(s.cred.Gid))
}
