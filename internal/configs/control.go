package configs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/knob"
)

// Control has the settings of the administration API and the console.
type Control struct {
	// Address (host:port) of the administration API and the console.
	//
	// Port 0 selects a free port.
	Listen string `knob:"control.listen,common" default:"127.0.0.1:8081" form:"listen"`
	// Address (host:port) of /livez, /readyz and /metrics of `hongbao control`, for probes and monitoring. Not used by
	// `hongbao serve --control`, whose address is serve.ops_listen.
	OpsListen string `knob:"control.ops_listen,common" default:"127.0.0.1:8084" form:"listen"`
	// TLS, if not nil, is the TLS configuration of the listener, with its certificate.
	TLS *tls.Config
	// Other topics to which a replay by the administration API or the console may write; empty for none. `hongbao replay`
	// may write to any topic.
	ReplayTopics []string `knob:"control.replay_topics"`
	// Time limit for the arrival of a whole request.
	ReadTimeout time.Duration `knob:"control.read_timeout" default:"10s" want:"1ms to 5m"`
	// Time limit for a request, until its answer is written.
	WriteTimeout time.Duration `knob:"control.write_timeout" default:"30s" want:"2ms to 10m"`
	// How long a stopping process waits for the running requests.
	DrainTimeout time.Duration `knob:"control.drain_timeout" default:"20s" want:"1ms to 1h"`
	// File with the certificate of the listener, in PEM; empty to serve without TLS.
	TLSCert string `knob:"control.tls_cert"`
	// File with the key of the listener's certificate, in PEM. Protect this file like the file of a secret.
	TLSKey string `knob:"control.tls_key"`
	// File with the certificates of the authorities that may sign a caller's certificate, in PEM. If this knob is set,
	// only callers with such a certificate may connect.
	TLSClientCA string `knob:"control.tls_client_ca"`
}

// AnswerTime returns how long the process may work on a request. The rest of WriteTimeout is for writing the answer.
func (c *Control) AnswerTime() time.Duration { return answerTime(c.WriteTimeout) }

// Check returns everything that is wrong with the knobs.
func (c *Control) Check() error { return errors.Join(knob.Check(c)...) }

func (l *loader) checkControl(c *Config) {
	s := &c.Control
	c.controlTLS = l.serverTLS("control.tls", s.TLSCert, s.TLSKey)
	l.clientCA(c.controlTLS, "control.tls", s.TLSClientCA)
	l.checkListen(c, "control.", s.Listen, s.TLSCert, UnsafeControlListen)
}

// CheckControl returns problems that concern only a process that serves the administration. Other commands may share its
// configuration file, so Load does not report these problems.
func (c *Config) CheckControl() error {
	if c.Ledger.DSN == "" {
		return errors.New("ledger.dsn is empty: the administration needs the ledger, which has the API keys; set it, or run " +
			"`hongbao serve` without --control")
	}
	return needsCert("control.tls", c.Control.TLSClientCA, c.controlTLS)
}

// needsCert returns an error if a listener has a client CA without a certificate. The parameter name is the common prefix
// of the knobs.
func needsCert(name, clientCA string, t *tls.Config) error {
	if clientCA != "" && t == nil {
		return fmt.Errorf("%[1]s_client_ca is set, but %[1]s_cert is not: set both or none", name)
	}
	return nil
}

// ControlConfig returns the complete configuration of the administration.
func (c *Config) ControlConfig() Control {
	out := c.Control
	out.TLS = c.controlTLS.Clone()
	return out
}

// moved maps the knobs that section serve had for the administration to those of section control.
var moved = map[string]string{
	"serve.control_listen": "control.listen", "serve.control_tls_cert": "control.tls_cert",
	"serve.control_tls_key": "control.tls_key", "serve.control_tls_client_ca": "control.tls_client_ca",
	"serve.replay_topics": "control.replay_topics",
}

// Moved returns what to do about a knob that section serve had for the administration; "" for any other name.
func Moved(name string) string {
	to := moved[name]
	if to == "" {
		return ""
	}
	return "it is " + to + " now: rename it, and run `hongbao control`, or `hongbao serve --control` for one process. The " +
		"timeouts of section serve no longer apply there: if you set any, set control.read_timeout, control.write_timeout and " +
		"control.drain_timeout, too"
}

// movedEnv is Moved for the name of a variable.
func movedEnv(env string) string {
	for name := range moved {
		if k := (knob.Knob{Name: name}); k.Env() == env {
			return Moved(name)
		}
	}
	return ""
}
