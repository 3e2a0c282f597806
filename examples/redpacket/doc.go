// Package redpacket is for users of the classic red-packet script, which many blog posts copy: a list of JSON packets,
// a hash of users, RPOP. It returns the same answers as that script with the program around it. "0" comes with the
// receipt's JSON (id, money, userId), "1" means that the user already has a packet, and "-1" means that no packet is
// left. You may copy this package, because it uses public packages only.
//
// The package's test plays random histories against the classic script on a real Redis, and compares every answer.
package redpacket
