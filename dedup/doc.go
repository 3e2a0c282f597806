// Package dedup makes sure that no push of a message happens twice, by the message's id: see Once. It is for pushers that
// have no sequence. What it refuses: to forget before the retention is over.
package dedup
