// Package redpacket is for those who come from the classic red-packet script, which is copied from blog to blog: a list
// of JSON packets, a hash of users, RPOP. It answers as that script and the program around it do: "0" with the
// receipt's JSON (id, money, userId), "1" if the user has a packet already, "-1" when none is left. Copy it: it needs
// public packages only.
//
// Its test plays random histories against the classic script itself, on a real Redis, and compares answer by answer.
package redpacket
