// Package guard turns panics into errors, so that a bug ends one piece of work instead of the process.
package guard

import (
	"errors"
	"net/http"
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/hongbao-project/hongbao"
)

// ErrPanic is the error of work that panicked. Whether the work has had an effect is unknown.
var ErrPanic = hongbao.Errorf(hongbao.ClassUnknown, "%w",
	errors.New("the code panicked, which is a bug; the log has the stack under the code handler_panicked"))

// Call calls do. If do panics, Call logs the panic with its stack and returns ErrPanic. It lets http.ErrAbortHandler
// pass, by which a handler asks net/http to cut the connection.
func Call(log *zap.Logger, do func() error) (err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares the value, too
			panic(p)
		}
		log.Error("a handler panicked", zap.String("code", "handler_panicked"), zap.Any("panic", p),
			zap.ByteString("stack", debug.Stack()))
		err = ErrPanic
	}()
	return do()
}
