package hongbao

// Space says where the keys of a deployment are in Redis. Its fields must not change after the deployment was
// initialized.
type Space struct {
	Prefix string // 1 to 32 bytes without {, }, : and white space; the knob deployment.key_prefix
	Shards int    // 1 to 1024; the knob deployment.shards
}
