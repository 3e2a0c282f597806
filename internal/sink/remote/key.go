package remote

import (
	"strconv"
)

// keySep stands between the parts of a key; none of them can hold it.
const keySep = ":"

// MaxDeployment is how long a deployment's id may be, so that a key fits into hongbao.MaxIDLength: 54 + 64 + 8 digits
// + 2.
const MaxDeployment = 54

// Key is the Idempotency-Key and the reference of a grant: deployment, campaign and packet. It is the same for ever,
// whichever worker sends it and whatever became of Redis in between.
func Key(deployment, campaign string, packet int64) string {
	return deployment + keySep + campaign + keySep + strconv.FormatInt(packet, 10)
}
