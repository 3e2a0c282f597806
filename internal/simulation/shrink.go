package simulation

import "github.com/hongbao-project/hongbao/internal/simulation/virtual"

// Shrink returns the smallest plan that it finds which still fails: it leaves out halves of the deeds and of the faults
// of requests, then quarters, and so on. fails says whether a plan fails; tries limits how often it is asked. A seed
// does not decide the order of goroutines, so fails should run a plan several times.
func Shrink(p Plan, tries int, fails func(Plan) bool) Plan {
	ask := func(smaller Plan) bool {
		if tries <= 0 {
			return false
		}
		tries--
		return fails(smaller)
	}
	p.Faults = halve(p.Faults, func(faults []virtual.Fault) bool {
		smaller := p
		smaller.Faults = faults
		return ask(smaller)
	})
	p.Deeds = halve(p.Deeds, func(deeds []Deed) bool {
		smaller := p
		smaller.Deeds = deeds
		return ask(smaller)
	})
	return p
}

// halve leaves out parts of a list while the rest is still enough.
func halve[T any](list []T, enough func([]T) bool) []T {
	for size := (len(list) + 1) / 2; size > 0; size /= 2 {
		for from := 0; from < len(list); {
			rest := append(append(make([]T, 0, len(list)), list[:from]...), list[min(from+size, len(list)):]...)
			if enough(rest) {
				list = rest
			} else {
				from += size
			}
		}
		if size == 1 {
			break
		}
	}
	return list
}
