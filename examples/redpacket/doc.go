// Package redpacket is for users of the classic red-packet script, which is copied from blog to blog: a list of JSON
// packets, a hash of users, RPOP. It answers as that script and the program around it do. "0" comes with the
// receipt's JSON (id, money, userId), "1" means that the user has a packet already, and "-1" that none is left. Copy
// it: it needs public packages only.
//
// Its test plays random histories against the classic script itself, on a real Redis, and compares every answer.
package redpacket
