package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// A secret is secretPrefix and the base64 of minKey to maxKey bytes.
const (
	secretPrefix   = "whsec_"
	minKey, maxKey = 24, 64
)

// key returns the bytes of a secret. Its error never quotes the secret.
func key(secret string) ([]byte, error) {
	const want = "want " + secretPrefix + " and base64 of 24 to 64 random bytes, as `echo " + secretPrefix +
		"$(openssl rand -base64 32)` prints"
	if secret == "" {
		return nil, errors.New("is empty: " + want)
	}
	text, is := strings.CutPrefix(secret, secretPrefix)
	if !is {
		return nil, errors.New("does not begin with " + secretPrefix + ": " + want)
	}
	k, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, errors.New("is not base64: " + want)
	}
	if len(k) < minKey || len(k) > maxKey {
		return nil, fmt.Errorf("has %d bytes: %s", len(k), want)
	}
	return k, nil
}

// CheckSecret returns an error if a secret has the wrong form. The error never quotes the secret.
func CheckSecret(secret string) error {
	_, err := key(secret)
	return err
}

// signer has the keys of the present and, during a change, of the previous secret.
type signer [][]byte

// newSigner returns the signer for secrets that Config.Check has accepted.
func newSigner(secrets ...string) (s signer) {
	for _, secret := range secrets {
		if k, err := key(secret); err == nil {
			s = append(s, k)
		}
	}
	return s
}

// sign sets the headers of one try. The signatures of all keys are in one header, with spaces between them. The
// receiver accepts the request if any of them is right.
func (s signer) sign(h http.Header, id string, at time.Time, body []byte) {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(s))
	for i, k := range s {
		mac := hmac.New(sha256.New, k)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	h.Set(headerID, id)
	h.Set(headerTimestamp, timestamp)
	h.Set(headerSignature, strings.Join(signatures, " "))
}
