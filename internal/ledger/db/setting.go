package db

import (
	"errors"
	"fmt"
	"slices"
)

// SettingError says that a setting of the database could lose money.
type SettingError struct {
	// Setting is the setting's name as the database spells it; Value is its value.
	Setting, Value string
	// Fix says how to fix the setting.
	Fix string
}

func (e *SettingError) Error() string {
	return fmt.Sprintf("%s is %s: %s", e.Setting, e.Value, e.Fix)
}

// CheckUnsafe returns an error if allow has a name that is not among those of the settings which may be unsafe.
func CheckUnsafe(allow, settings []string) error {
	var errs []error
	for _, name := range allow {
		if !slices.Contains(settings, name) {
			errs = append(errs, fmt.Errorf("unsafe-allow %.40q does not exist: want one of %v", name, settings))
		}
	}
	return errors.Join(errs...)
}

// Refuse returns an error that names the unsafe settings which are not in allow; nil if there are none.
func Refuse(settings []*SettingError, allow []string) error {
	var errs []error
	for _, s := range settings {
		if !slices.Contains(allow, s.Setting) {
			errs = append(errs, s)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("the database could lose what it has confirmed: %w", errors.Join(errs...))
}
