// Package dedup makes sure that no message is pushed twice. It recognizes a message by its id; see Once. It is for
// messages without sequence numbers. It remembers each id for a retention time.
package dedup
