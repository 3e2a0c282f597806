package hongbao

// Space says where a deployment's keys are in Redis. Neither field may change once the deployment is founded.
type Space struct {
	Prefix string // 1 to 32 bytes without {, }, : and white space; the knob deployment.key_prefix
	Shards int    // 1 to 1024; the knob deployment.shards
}
