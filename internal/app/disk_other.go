//go:build !linux && !darwin

package app

import "errors"

// diskSpace returns errors.ErrUnsupported on this system.
func diskSpace(string) (free, size uint64, err error) { return 0, 0, errors.ErrUnsupported }
