// Package dedup makes sure that no message is pushed twice, by the message's id: see Once. It is for pushers that
// have no sequence. It refuses to forget a message before the retention is over.
package dedup
