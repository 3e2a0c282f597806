// Package plural writes counts for people.
package plural

import (
	"strings"

	"github.com/hongbao-project/hongbao/internal/base/money"
)

// Of returns a count with its noun, as "1 grant" or "2,000 grants". The noun is regular.
func Of[N ~int | ~int64](n N, noun string) string {
	switch stem, y := strings.CutSuffix(noun, "y"); {
	case n == 1:
	case y:
		noun = stem + "ies"
	default:
		noun += "s"
	}
	return money.Count(int64(n)) + " " + noun
}

// Verb returns the form of a verb that fits a count: one, as "was", or many, as "were".
func Verb[N ~int | ~int64](n N, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
