// Package sinktest is the suite that any sink must pass: any hongbao.Handler that delivers grants to some system.
//
// A sink gets each grant at least once, from any worker, and often again. The suite delivers grants as workers do in
// bad weather: the same batch again, two workers at once, outages, contexts that end, workers that die. After each of
// these every grant must have had its effect exactly once. The suite also checks that the errors say the truth. A nil
// is a promise that the effect is there. An outage must look like one, or good grants become dead letters.
//
// One function runs it:
//
//	func TestSink(t *testing.T) {
//		sinktest.Run(t, func(t testing.TB) sinktest.Subject {
//			target := newTarget(t)
//			return sinktest.Subject{
//				Open:    func(t testing.TB) hongbao.Handler { return newSink(t, target) },
//				Effects: target.effects,
//			}
//		})
//	}
//
// The other fields of Subject are hooks. Each one lets the suite do more to the target. Cases without their hook are
// skipped, with the reason.
//
// The suite reads the clock and the scheduler: a case of random moments can find a defect in one run and not in the
// next one. It never reports a defect that is not there, if Patience is long enough.
package sinktest
