package answers

// OrNull returns a pointer to value if there is true. Otherwise it returns nil, which JSON writes as null.
func OrNull[T any](there bool, value T) *T {
	if !there {
		return nil
	}
	return &value
}
