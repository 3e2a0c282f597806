package remote

import (
	"strconv"
)

// keySep separates the parts of a key. No part can contain it.
const keySep = ":"

// MaxDeployment is the maximum length of a deployment's id. With it, a key fits into hongbao.MaxIDLength: 54 + 64 for
// the campaign + 8 digits + 2 separators.
const MaxDeployment = 54

// Key returns the Idempotency-Key and reference of a grant. It depends only on the deployment, the campaign and the
// packet, so every worker and every replay sends the same key.
func Key(deployment, campaign string, packet int64) string {
	return deployment + keySep + campaign + keySep + strconv.FormatInt(packet, 10)
}
