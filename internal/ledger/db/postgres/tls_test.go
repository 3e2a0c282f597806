package postgres

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hongbao-project/hongbao/internal/ledger/db"
)

// The next connection to PostgreSQL uses a renewed certificate, without a restart.
func TestCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificate := func(serial int64) []byte {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		template := x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
		require.NoError(t, err)
		private, err := x509.MarshalPKCS8PrivateKey(key)
		require.NoError(t, err)
		for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: der},
			"key": {Type: "PRIVATE KEY", Bytes: private}} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
		}
		return der
	}
	first := certificate(1)
	dsn := "postgres://u@h/d?sslmode=require&sslcert=" + filepath.Join(dir, "cert") + "&sslkey=" + filepath.Join(dir,
		"key")
	pc, err := Database{DSN: dsn}.poolConfig(&db.Limits{Conns: 1})
	require.NoError(t, err)
	connect := func() (shown []byte, err error) {
		cc := pc.ConnConfig.Copy()
		err = pc.BeforeConnect(t.Context(), cc)
		return cc.TLSConfig.Certificates[0].Certificate[0], err
	}
	shown, err := connect()
	require.NoError(t, err)
	require.Equal(t, first, shown)

	second := certificate(2)
	shown, err = connect()
	require.NoError(t, err)
	require.Equal(t, second, shown)

	require.NoError(t, os.Remove(filepath.Join(dir, "key")))
	_, err = connect()
	require.ErrorContains(t, err, "sslkey can't be read any more")
}
