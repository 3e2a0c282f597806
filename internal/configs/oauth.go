package configs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/segmentio/kafka-go/sasl"

	"github.com/hongbao-project/hongbao"
)

// oauthBearer is the SASL mechanism OAUTHBEARER (RFC 7628). Its token is in a file, which each login reads again.
type oauthBearer struct{ file string }

// Name implements sasl.Mechanism.
func (oauthBearer) Name() string { return "OAUTHBEARER" }

// Start implements sasl.Mechanism.
func (o oauthBearer) Start(context.Context) (sasl.StateMachine, []byte, error) {
	token, err := o.token()
	if err != nil {
		return nil, nil, hongbao.Outagef(hongbao.ClassTransient, "log in to Kafka: kafka.sasl_token_file: %w", err)
	}
	return o, []byte("n,,\x01auth=Bearer " + token + "\x01\x01"), nil
}

// Next implements sasl.StateMachine. A broker that accepts the token answers nothing; another answer says why not.
func (o oauthBearer) Next(_ context.Context, answer []byte) (bool, []byte, error) {
	if len(answer) > 0 {
		return false, nil, hongbao.Outagef(hongbao.ClassTransient, "log in to Kafka: the broker rejects the token of %s: %.300s",
			o.file, answer)
	}
	return true, nil, nil
}

// token reads the token. The error does not have it.
func (o oauthBearer) token() (string, error) {
	token, wrong := readSecret(o.file)
	if wrong != "" {
		return "", errors.New(wrong)
	}
	if strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", fmt.Errorf("%s has characters that no token has, such as spaces: write the token only", o.file)
	}
	return token, nil
}

// checkOAuth checks the knobs of a login by a token.
func (l *loader) checkOAuth(c *Config) {
	k := &c.Kafka
	if k.SASLUsername != "" {
		l.bad("kafka.sasl_username", "oauthbearer takes the user from the token: remove it")
	}
	if k.SASLPassword != "" {
		l.bad("kafka.sasl_password", "oauthbearer logs in by the token: remove it")
	}
	if k.SASLTokenFile == "" {
		l.bad("kafka.sasl_token_file", "it is empty, but kafka.sasl_mechanism is %s: set it", k.SASLMechanism)
		return
	}
	if !k.TLS.On && !slices.Contains(c.Unsafe.Allow, unsafeSASL) {
		l.bad("kafka.sasl_mechanism", "oauthbearer sends the token in clear text: set kafka.tls to true, or add %s to unsafe.allow",
			unsafeSASL)
	}
	o := oauthBearer{k.SASLTokenFile}
	if _, err := o.token(); err != nil {
		l.bad("kafka.sasl_token_file", "%v", err)
	}
	c.kafkaSASL = o
}
