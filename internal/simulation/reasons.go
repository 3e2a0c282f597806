package simulation

// reasons says why few histories reach something: from the group and the item of the coverage, or the item's first
// word, to the reason.
var reasons = map[string]map[string]string{}
