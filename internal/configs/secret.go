package configs

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// maxSecret is the maximum size of a file with a secret, in bytes.
const maxSecret = 64 << 10

// ReadSecret reads a file with one secret, such as an API key. It refuses a file that other users can read.
func ReadSecret(path string) (string, error) {
	secret, wrong := readSecret(path)
	if wrong != "" {
		return "", errors.New(wrong)
	}
	return secret, nil
}

// readSecret reads a file with one secret, without the line break at the end. If the file is wrong, readSecret returns
// a text that says why; the text never contains the secret.
func readSecret(path string) (secret, wrong string) {
	data, info, err := readFile(path, maxSecret)
	if err != nil {
		return "", "the secret can't be read: " + err.Error()
	}
	if wrong := tooOpen(path, info); wrong != "" {
		return "", wrong
	}
	secret = strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if secret == "" {
		return "", path + " is empty: write the secret into it, or unset the variable"
	}
	if strings.ContainsAny(secret, "\x00\r\n") {
		return "", path + " has more than one line: write the secret only"
	}
	return secret, ""
}

var passwordPair = regexp.MustCompile(`(?i)(^|[\s?&;])(ssl)?password\s*=`)

// holdsPassword reports whether a connection string may contain a password. If it is unsure, it returns true.
func holdsPassword(dsn string) bool {
	if passwordPair.MatchString(dsn) || mysqlPassword.MatchString(dsn) && !isURL(dsn) {
		return true
	}
	if !isURL(dsn) {
		return false
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return true
	}
	for name := range u.Query() {
		if n := strings.ToLower(name); n == "password" || n == "sslpassword" {
			return true
		}
	}
	_, has := u.User.Password()
	return has
}

func hasPrefix(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

func isURL(dsn string) bool { return strings.Contains(dsn, "://") }

var (
	// mysqlPassword matches user:password@tcp(host:3306)/database. The password may contain any characters.
	mysqlPassword = regexp.MustCompile(`^[^:@]*:.*@[a-z0-9]*[(/]`)
	mysqlPattern  = regexp.MustCompile(`^[^/]*@[a-z0-9]+\(.*\)/`)
)

// isMySQL reports whether a text that should be a path looks like user@tcp(host:3306)/database.
func isMySQL(dsn string) bool { return mysqlPattern.MatchString(dsn) }

var pairPattern = regexp.MustCompile(`^\s*[a-z_]+\s*=`)

// pairs reports whether a connection string has the form name=value name=value.
func pairs(dsn string) bool { return pairPattern.MatchString(dsn) }
