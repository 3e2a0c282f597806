// Package restore decides how to restore a shard whose Redis has lost writes. It decides up to which seq Redis is
// intact, which grants are restored, which packets are withheld, and whether the shard may open. Its input is evidence
// that the caller has collected; it calls no server. Its tests check the whole protocol, which docs/design/restore.md
// describes.
package restore
