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
