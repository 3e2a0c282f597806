package sinks

import "github.com/hongbao-project/hongbao"

// Close closes a handler that has a method Close, with or without an error. The error is ignored: the handler gets no
// more calls, and each of its results was final.
func Close(h hongbao.Handler) {
	switch c := h.(type) {
	case interface{ Close() }:
		c.Close()
	case interface{ Close() error }:
		_ = c.Close()
	}
}
