package configs

import (
	"fmt"
	"net/url"
	"strings"
)

// Place describes the deployment and its servers, without any secret. Commands show it to a person before a change.
func (c *Config) Place() string {
	return fmt.Sprintf("deployment %s: Redis %s, ledger %s", c.Deployment.ID, strings.Join(c.Redis.Addrs, ", "), c.Ledger.Place())
}

// Place describes the ledger's database, without its password.
func (l *Ledger) Place() string {
	dsn := string(l.DSN)
	at := dsn
	switch {
	case dsn == "":
		return "none (ledger.dsn is not set)"
	case isURL(dsn):
		u, err := url.Parse(dsn)
		if err != nil {
			return l.Driver
		}
		at = u.Host + u.Path
	case isMySQL(dsn):
		at, _, _ = strings.Cut(dsn[strings.LastIndex(dsn, "@")+1:], "?")
	case pairs(dsn):
		var parts []string
		for pair := range strings.FieldsSeq(dsn) {
			switch name, value, _ := strings.Cut(pair, "="); name {
			case "host", "port", "dbname":
				parts = append(parts, value)
			}
		}
		at = strings.Join(parts, " ")
	}
	return l.Driver + " " + at
}
