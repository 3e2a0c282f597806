// Package couponrush is for users of the classic coupon script. That script has three parameters: max coupons,
// user_max for one user, user_per_day_max for one user on one day. It answers 0 (granted), 1 (day limit), 2 (user
// limit) or 3 (none left). So does this package. Copy it: it needs public packages only.
//
// Each coupon also has a code, and each grab a request id. A caller whose answer was lost repeats the grab with the
// same id and gets the same coupon again; the classic script would grant a second one.
//
// Its test plays random histories over many days against the classic script itself, on a real Redis, and compares
// every answer.
package couponrush
