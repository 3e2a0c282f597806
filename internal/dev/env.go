package dev

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/hongbao-project/hongbao/internal/app"
)

// envMark is the first line of every file that --env writes. A file without it was written by another program
// and is never removed.
const envMark = "# of a hongbao dev that runs; it removes this file when it stops\n"

// clearEnv removes the file at path if a killed earlier run left it there. It returns an error if another
// program wrote the file.
func clearEnv(path string) error {
	if path == "" {
		return nil
	}
	what, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && what.Mode().IsRegular() {
		var ours bool
		if ours, err = begins(path, envMark); err == nil && ours {
			err = os.Remove(path)
		} else if err == nil {
			err = app.Usage("--env: %s is there already and is not of `hongbao dev`: name a file that does not exist yet", path)
		}
	} else if err == nil {
		err = app.Usage("--env: %s is not a regular file: name a file that does not exist yet", path)
	}
	if err != nil {
		return fmt.Errorf("clear the file of --env: %w", err)
	}
	return nil
}

// begins reports whether the file at path begins with text.
func begins(path, text string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, int64(len(text))))
	return string(head) == text, err
}

// writeEnv creates the file so that only its owner can read it.
func writeEnv(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make the file of --env: %w", err)
	}
	_, err = f.WriteString(envMark + text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the file of --env: %w", errors.Join(err, os.Remove(path)))
	}
	return nil
}

// endsEnv explains what a shell says about the file from now on.
func endsEnv(path string) string {
	return path + " is removed: a shell that reads it says \"no such file\" until `hongbao dev --env " + path + "` runs again"
}

// removeEnv removes the file if it still contains this text.
func removeEnv(path, text string) error {
	ours, err := begins(path, envMark+text)
	if err == nil && ours {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the file of --env: %w", err)
	}
	return nil
}
