package remote

import (
	"strconv"
)

// keySep separates the parts of a key; no part can contain it.
const keySep = ":"

// MaxDeployment is the maximum length of a deployment's id, so that a key fits into hongbao.MaxIDLength: 54 + 64 + 8
// digits + 2.
const MaxDeployment = 54

// Key returns the Idempotency-Key and the reference of a grant: deployment, campaign and packet. It never changes,
// whichever worker sends it and whatever happened to Redis in between.
func Key(deployment, campaign string, packet int64) string {
	return deployment + keySep + campaign + keySep + strconv.FormatInt(packet, 10)
}
