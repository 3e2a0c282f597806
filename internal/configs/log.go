package configs

import (
	"fmt"
	"io"
	"os"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/term"
)

// The formats of the log.
const (
	logAuto    = "auto"
	logJSON    = "json"
	logConsole = "console"
)

// Logger returns a logger that writes one line per event to w: JSON, or readable text if w is a terminal. Nothing is
// sampled, because the lines of an incident are the important ones. Control characters in fields are escaped. The
// logger also gets the messages about changed certificates.
func (c *Config) Logger(w io.Writer) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(c.Log.Level)
	if err != nil {
		return nil, fmt.Errorf("make the log: %w", err)
	}
	e := zap.NewProductionEncoderConfig()
	e.TimeKey, e.MessageKey = "time", "message"
	e.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	e.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(e)
	if c.console(w) {
		e.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		e.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(e)
	}
	out := zapcore.Lock(zapcore.AddSync(w))
	log := zap.New(zapcore.NewCore(encoder, out, level), zap.ErrorOutput(zapcore.Lock(os.Stderr)))
	c.Watch(log)
	return log, nil
}

// Watch sets the logger for changes of files with certificates.
func (c *Config) Watch(log *zap.Logger) {
	for _, w := range c.watched {
		w.setLog(log)
	}
}

func (c *Config) console(w io.Writer) bool {
	if c.Log.Format != logAuto {
		return c.Log.Format == logConsole
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
