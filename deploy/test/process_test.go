package test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// checkProcess runs the program with the pod's arguments and environment. The program must know each command, flag,
// variable and knob, and each file that they name must be mounted.
func (r *rendered) checkProcess(name string, pod *corev1.PodTemplateSpec) {
	t, c := r.t, pod.Spec.Containers[0]
	out, err := exec.Command(program(t), append(c.Args, "--help")...).CombinedOutput()
	require.NoError(t, err, "%s: %s", name, out)
	require.Contains(t, string(out), "\n  hongbao "+c.Args[0]+" [flags]\n", "the help of another command")

	root := t.TempDir()
	r.mount(root, pod)
	args := []string{"config", "check", "--json"}
	for _, arg := range c.Args {
		flag, _, _ := strings.Cut(arg, "=")
		if strings.Contains(flag, ".") {
			args = append(args, strings.ReplaceAll(arg, "/etc/hongbao/", root+"/"))
		}
	}
	cmd := exec.Command(program(t), args...)
	cmd.Env = environment(c.Env, root, r.dsn(pod))
	var says bytes.Buffer
	cmd.Stderr = &says
	out, err = cmd.Output()
	require.NoError(t, err, "%s: %s", name, &says)
	r.checkTimes(name, pod, settings(t, out))
	r.checkUsers(name, c.Env)
}

// checkUsers requires that deploy/rights grants rights to each Redis or Kafka user in the environment.
func (r *rendered) checkUsers(name string, env []corev1.EnvVar) {
	for _, e := range env {
		file, ok := map[string]string{"HONGBAO_REDIS_USERNAME": "redis.acl", "HONGBAO_KAFKA_SASL_USERNAME": "kafka-acls.sh"}[e.Name]
		if ok {
			text, err := os.ReadFile(filepath.Join("../rights", file))
			require.NoError(r.t, err)
			require.Regexp(r.t, `(?m)^(user|allow) `+e.Value+" ", string(text), "%s: %s", name, e.Name)
		}
	}
}

// environment returns the pod's environment variables, with a placeholder for each secret.
func environment(env []corev1.EnvVar, root, dsn string) []string {
	out := []string{"PATH=" + os.Getenv("PATH")}
	for _, e := range env {
		value := strings.ReplaceAll(e.Value, "/etc/hongbao/", root+"/")
		switch {
		case e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil:
		case strings.HasSuffix(e.Name, "_DSN"):
			value = dsn
		default:
			value = "secret"
		}
		out = append(out, e.Name+"="+value)
	}
	return out
}

// dsn returns a connection string for the driver in the pod's configuration.
func (r *rendered) dsn(pod *corev1.PodTemplateSpec) string {
	var config struct{ Ledger struct{ Driver string } }
	require.NoError(r.t, yaml.Unmarshal([]byte(r.config(pod)), &config))
	return map[string]string{"postgres": "postgres://hongbao:x@pg/hongbao?sslmode=verify-full",
		"mysql": "hongbao:x@tcp(db:3306)/hongbao?tls=true"}[config.Ledger.Driver]
}

// config returns the pod's hongbao.yaml.
func (r *rendered) config(pod *corev1.PodTemplateSpec) string {
	for _, v := range pod.Spec.Volumes {
		if v.ConfigMap != nil {
			return named[*corev1.ConfigMap](r, v.ConfigMap.Name).Data["hongbao.yaml"]
		}
	}
	require.Fail(r.t, "the pod has no configuration")
	return ""
}

// mount creates the files of the pod's volumes in a folder.
func (r *rendered) mount(root string, pod *corev1.PodTemplateSpec) {
	for _, v := range pod.Spec.Volumes {
		dir := filepath.Join(root, v.Name)
		require.NoError(r.t, os.Mkdir(dir, 0o755))
		if v.ConfigMap != nil {
			text := strings.ReplaceAll(r.config(pod), "/etc/hongbao/", root+"/")
			require.NoError(r.t, os.WriteFile(filepath.Join(dir, "hongbao.yaml"), []byte(text), 0o600))
			continue
		}
		cert, key := keyPair(r.t)
		for file, text := range map[string][]byte{"ca.crt": cert, "tls.crt": cert, "tls.key": key, "keys.json": []byte(`{"keys": []}`),
			"ledger-dsn": []byte(r.dsn(pod))} {
			require.NoError(r.t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
		}
	}
}

func keyPair(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "hongbao"},
		DNSNames: []string{"hongbao"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

func settings(t *testing.T, answer []byte) map[string]string {
	t.Helper()
	var read struct {
		Settings []struct{ Name, Value string } `json:"settings"`
	}
	require.NoError(t, json.Unmarshal(answer, &read), "%s", answer)
	out := map[string]string{}
	for _, s := range read.Settings {
		out[s.Name] = s.Value
	}
	require.NotEmpty(t, out)
	return out
}

// checkTimes requires that Kubernetes waits longer before it kills the pod than the process needs to drain.
func (r *rendered) checkTimes(name string, pod *corev1.PodTemplateSpec, knobs map[string]string) {
	var parts []string
	switch pod.Spec.Containers[0].Args[0] {
	case "serve":
		parts = []string{"serve.drain_delay", "serve.drain_timeout", "producer.call_timeout"}
	case "control":
		parts = []string{"control.drain_timeout"}
	case "work":
		parts = []string{"consumer.drain_timeout"}
	default:
		return
	}
	var sum time.Duration
	for _, knob := range parts {
		d, err := time.ParseDuration(knobs[knob])
		require.NoError(r.t, err, knob)
		sum += d
	}
	grace := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
	require.Greater(r.t, grace, sum, "%s is killed before it is drained", name)
}
