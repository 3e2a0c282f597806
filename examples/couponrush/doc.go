// Package couponrush is for users of the classic coupon script. That script has three parameters: max is the number of
// coupons, user_max the limit per user, and user_per_day_max the limit per user and day. It answers 0 (granted), 1 (day
// limit), 2 (user limit) or 3 (none left), and this package returns the same codes. You may copy it, because it uses
// public packages only.
//
// Each coupon also has a code, and each grab a request id. A caller whose answer was lost repeats the grab with the
// same id and gets the same coupon again; the classic script would grant a second one.
//
// The package's test plays random histories over many days against the classic script on a real Redis, and compares
// every answer.
package couponrush
