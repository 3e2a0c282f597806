package winners

import "github.com/cespare/xxhash/v2"

// Decode parses the stored form of a filter.
func Decode(text string, body []byte) (*Filter, error) {
	h, err := parseHead(text)
	if err != nil {
		return nil, err
	}
	return h.decode(body)
}

// Prove runs the check with which Build verifies a filter before it stores it.
func Prove(f *Filter, users []string) error {
	hashes := make([]uint64, len(users))
	for i, u := range users {
		hashes[i] = xxhash.Sum64String(u)
	}
	return f.prove(hashes)
}
