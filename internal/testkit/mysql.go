package testkit

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
)

// mysqlPrograms returns the MySQL that scripts/setup.sh mysql has unpacked, and the command that creates its data
// folder.
func (m *MariaDBServer) mysqlPrograms() (daemon string, create func() command, err error) {
	cache, err := fetched()
	if err != nil {
		return "", nil, err
	}
	m.mysql = filepath.Join(cache, "servers", "mysql")
	daemon = filepath.Join(m.mysql, "usr", "sbin", "mysqld")
	if _, err := os.Stat(daemon); err != nil {
		return "", nil, fmt.Errorf("%s is set, and there is no MySQL: run scripts/setup.sh mysql: %w", onMySQLEnv, err)
	}
	return daemon, func() command {
		return m.command(daemon, "--no-defaults", "--initialize-insecure", "--datadir="+m.data(), "--tmpdir="+m.dir,
			"--init-file="+m.initFile(), "--basedir="+filepath.Join(m.mysql, "usr"),
			"--secure-file-priv=NULL", "--user="+mysqlUser())
	}, nil
}

// mysqlUser returns the present user, since MySQL runs as root only by name.
func mysqlUser() string {
	u, err := user.Current()
	if err != nil {
		return "mysql"
	}
	return u.Username
}

func (m *MariaDBServer) initFile() string { return filepath.Join(m.dir, "init.sql") }

// writeInit writes the statements that make MySQL's data folder like MariaDB's: root may connect over TCP.
func (m *MariaDBServer) writeInit() error {
	if m.mysql == "" {
		return nil
	}
	text := "CREATE USER root@'%';\nGRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;\n"
	return os.WriteFile(m.initFile(), []byte(text), 0o600)
}

// byLoader makes a command of MySQL use the loader and the libraries that were unpacked with it.
func (m *MariaDBServer) byLoader(c *command) {
	lib := func(pattern string) string {
		found, err := filepath.Glob(filepath.Join(m.mysql, "usr", "lib", pattern))
		if err != nil || len(found) == 0 {
			return "no " + pattern
		}
		return found[0]
	}
	c.args = append([]string{"--library-path", filepath.Dir(lib("*-linux-gnu/libc.so.6")), c.path}, c.args...)
	c.path = lib("*-linux-gnu/ld-linux-*.so.*")
}

// mysqlSettings turns settings for MariaDB into settings for MySQL.
func (m *MariaDBServer) mysqlSettings(settings map[string]string) {
	settings["innodb_redo_log_capacity"] = settings["innodb_log_file_size"]
	delete(settings, "innodb_log_file_size")
	settings["basedir"] = filepath.Join(m.mysql, "usr")
	settings["secure_file_priv"] = "NULL"
	settings["mysqlx"] = "off"
	settings["user"] = mysqlUser()
	settings["log_bin"] = "off"
}
