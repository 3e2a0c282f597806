// Package couponrush is for those who come from the classic coupon script. That script has three parameters: max
// coupons, user_max for one user, user_per_day_max for one user on one day. It answers 0 (granted), 1 (day limit), 2
// (user limit) or 3 (none left), and so does this package. Copy it: it needs public packages only.
//
// Each coupon has a code besides, and each grab a request id. A grab whose answer was lost is repeated with the same id
// and gets the same coupon again; the classic script would give a second one.
//
// Its test plays random histories over many days against the classic script itself, on a real Redis, and compares
// answer by answer.
package couponrush
