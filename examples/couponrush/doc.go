// Package couponrush is an example for those who come from the classic coupon script: max coupons, user_max for one
// user, user_per_day_max for one user on one day, and the answers 0 (granted), 1 (day limit), 2 (user limit), 3 (none
// left), in that order of precedence. Here each coupon has a code besides, and each grab a request id, so that a repeat
// of a grab whose answer was lost gets the same coupon again; the classic script would give a second one.
//
// Its test plays random histories over many days against the classic script itself, on a real Redis, and compares
// answer by answer.
package couponrush
