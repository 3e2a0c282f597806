package configs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The token is read from its file at each login, so a signer can replace it. No error has the token.
func TestOAuthBearerReadsTheTokenAtEachLogin(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(text), mode))
		require.NoError(t, os.Chmod(file, mode))
	}
	write("first.token\n", 0o600)
	c := (&input{args: []string{"--kafka.sasl_mechanism=oauthbearer", "--kafka.sasl_token_file=" + file, "--kafka.tls"}}).must(t)
	m := c.PublisherConfig().SASL
	require.Equal(t, "OAUTHBEARER", m.Name())
	login := func() (string, error) {
		_, first, err := m.Start(t.Context())
		return string(first), err
	}
	first, err := login()
	require.NoError(t, err)
	require.Equal(t, "n,,\x01auth=Bearer first.token\x01\x01", first)
	write("second.token", 0o600)
	first, err = login()
	require.NoError(t, err)
	require.Equal(t, "n,,\x01auth=Bearer second.token\x01\x01", first)
	for text, says := range map[string]string{
		"":            "is empty",
		"a\x01b":      "characters that no token has",
		"two\nlines":  "more than one line",
		"with a\tgap": "characters that no token has",
	} {
		write(text, 0o600)
		_, err := login()
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, "kafka.sasl_token_file")
	}
	write("third.secret", 0o644)
	_, err = login()
	require.ErrorContains(t, err, "is open to others")
	require.NotContains(t, err.Error(), "third")
	require.NoError(t, os.Remove(file))
	_, err = login()
	require.ErrorContains(t, err, "no such file")

	state, _, err := (oauthBearer{file}).Start(t.Context())
	require.Error(t, err)
	require.Nil(t, state)
	write("fourth.token", 0o600)
	state, _, err = m.Start(t.Context())
	require.NoError(t, err)
	done, _, err := state.Next(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, done)
	_, _, err = state.Next(t.Context(), []byte(`{"status":"invalid_token"}`))
	require.ErrorContains(t, err, `the broker rejects the token of `+file+`: {"status":"invalid_token"}`)
}

func TestOAuthBearerIsChecked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("a.b.c"), 0o600))
	oauth := "--kafka.sasl_mechanism=oauthbearer"
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{oauth, "--kafka.tls"}, "kafka.sasl_token_file: it is empty, but kafka.sasl_mechanism is oauthbearer: set it"},
		{[]string{oauth, "--kafka.sasl_token_file=" + file}, "oauthbearer sends the token in clear text: set kafka.tls to true, or add " +
			"sasl_plain_without_tls to unsafe.allow"},
		{[]string{oauth, "--kafka.tls", "--kafka.sasl_token_file=" + file, "--kafka.sasl_username=u"},
			"kafka.sasl_username: oauthbearer takes the user from the token: remove it"},
		{[]string{oauth, "--kafka.tls", "--kafka.sasl_token_file=/no/such/file"}, "kafka.sasl_token_file: the secret can't be read"},
		{[]string{"--kafka.sasl_token_file=" + file}, "kafka.sasl_token_file: it is only for kafka.sasl_mechanism oauthbearer"},
	} {
		problems := (&input{args: c.args}).problems(t)
		require.Len(t, problems, 1, c.args)
		require.Contains(t, problems[0], c.says)
	}
}
