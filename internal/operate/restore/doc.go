// Package restore decides what a recoverer does for a shard whose Redis lost writes: how far Redis is intact, which
// grants come back, which packets are withheld, and whether the shard may open. It judges facts that its caller has
// collected, and calls no server. Its tests check the whole protocol, which docs/design/restore.md describes.
package restore
