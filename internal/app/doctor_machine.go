package app

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/knob"
	"github.com/hongbao-project/hongbao/internal/ledger/db/postgres"
	"github.com/hongbao-project/hongbao/internal/ledger/db/sqlite"
)

// clockBound is the largest accepted difference between two clocks.
const clockBound = time.Second

// clock says how far the clock of a server is ahead of this machine's clock.
type clock struct {
	what  string
	ahead time.Duration
}

// clock records the time that a server reported. The server read its clock between begin and end.
func (p *part) clock(what string, said, begin, end time.Time) {
	c := clock{what: what}
	switch {
	case said.Before(begin):
		c.ahead = said.Sub(begin)
	case said.After(end):
		c.ahead = said.Sub(end)
	}
	p.clocks = append(p.clocks, c)
	if c.ahead.Abs() > clockBound {
		p.add(LevelWarning, "the clocks of this machine and of %s are %s apart: let NTP set both. Windows of campaigns use "+
			"Redis' clock; credits in doubt and keys use the database's clock", what, c.ahead.Abs().Round(time.Millisecond))
	}
}

// compareClocks compares the clocks of Redis and of the database with each other. Two clocks can differ too much
// although each is near this machine's clock.
func (p *part) compareClocks(database *part) {
	all := append(p.clocks[:len(p.clocks):len(p.clocks)], database.clocks...)
	if len(all) == 0 {
		return
	}
	byAhead := func(a, b clock) int { return cmp.Compare(a.ahead, b.ahead) }
	slow, fast := slices.MinFunc(all, byAhead), slices.MaxFunc(all, byAhead)
	if apart := fast.ahead - slow.ahead; apart > clockBound {
		p.add(LevelWarning, "the clock of %s is %s ahead of the clock of %s: let NTP set both", fast.what,
			apart.Round(time.Millisecond), slow.what)
	}
}

// Free space of a disk: less than diskPart of its size or less than diskBytes is a warning. Below diskAlmost a server
// may stop at any time, so that is a problem.
const (
	diskPart   = 0.1
	diskBytes  = 1 << 30
	diskAlmost = 64 << 20
)

// disk checks the free space of the disk with a path, if this machine can see that disk.
func (p *part) disk(what, path string) {
	free, size, err := diskSpace(path)
	if err != nil || size == 0 {
		return
	}
	level, advice := diskLevel(free, size)
	p.add(level, "%s: the disk of %s has %s of %s free%s", what, path, bytesText(free), bytesText(size), advice)
}

// diskLevel returns the level of a finding about free space, and what to do.
func diskLevel(free, size uint64) (level, advice string) {
	switch {
	case free < diskAlmost:
		return LevelProblem, ": free some space now; the server stops when the disk is full"
	case free < diskBytes || float64(free) < diskPart*float64(size):
		return LevelWarning, ": free some space before a rush. A rewrite of the append-only file needs its size once more"
	}
	return LevelOK, ""
}

func bytesText(n uint64) string {
	if n < 10<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d GiB", n>>30)
}

// redisIsHere reports whether Redis is on this machine. Doctor can't see the disk of another machine or of a container.
func (a *App) redisIsHere() bool {
	return !slices.ContainsFunc(a.Config.Redis.Addrs, func(addr string) bool {
		host, _, err := net.SplitHostPort(addr)
		return err != nil || !knob.IsLoopback(host)
	})
}

func (a *App) ledgerDisk(p *part) {
	if file := a.Config.Ledger.DSN.Reveal(); a.Config.Ledger.Driver == sqlite.Name {
		p.disk("ledger.dsn", filepath.Dir(file))
		p.privateFiles(file)
	}
}

// privateFiles warns of the files of an SQLite ledger that every user of this machine may read.
func (p *part) privateFiles(path string) {
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if err == nil && info.Mode().Perm()&0o007 != 0 && runtime.GOOS != "windows" {
			p.add(LevelWarning, "any user of this machine can read seeds and coupon codes in %s (mode %04o): chmod 600 %s",
				name, info.Mode().Perm(), name)
		}
	}
}

// certificateSoon is how long before a certificate expires doctor warns.
const certificateSoon = 30 * 24 * time.Hour

// examineCertificates checks every file with certificates that the configuration names.
func (a *App) examineCertificates(p *part) {
	for _, s := range a.Config.Settings() {
		authority := strings.HasSuffix(s.Name, "tls_ca") || strings.HasSuffix(s.Name, "tls_client_ca")
		if s.Value != "" && (authority || strings.HasSuffix(s.Name, "tls_cert")) {
			p.certificates(s.Name, s.Value, authority)
		}
	}
	if a.Config.Ledger.Driver != postgres.Name {
		return
	}
	if u, err := url.Parse(a.Config.Ledger.DSN.Reveal()); err == nil {
		for _, name := range []string{"sslcert", "sslrootcert"} {
			if path := u.Query().Get(name); path != "" && path != "system" {
				p.certificates("ledger.dsn "+name, path, name == "sslrootcert")
			}
		}
	}
}

// certificates checks the validity of the certificates in a file. Of several authorities one must be valid; of a chain
// every certificate must be valid.
func (p *part) certificates(name, path string, authority bool) {
	list, err := readCertificates(path)
	if err != nil {
		p.add(LevelProblem, "%s: %v", name, err)
		return
	}
	from, until := list[0].NotBefore, list[0].NotAfter
	for _, c := range list[1:] {
		if authority == c.NotAfter.After(until) {
			until = c.NotAfter
		}
		if authority == c.NotBefore.Before(from) {
			from = c.NotBefore
		}
	}
	now, end := time.Now(), until.UTC().Format(time.RFC3339)
	switch {
	case now.After(until):
		p.add(LevelProblem, "%s: %s expired at %s: replace it. The processes read a certificate again when its file has "+
			"changed, and certificates of authorities at their start", name, path, end)
	case now.Before(from):
		p.add(LevelProblem, "%s: %s is valid only from %s on: replace it by a valid certificate, or fix this machine's clock",
			name, path, from.UTC().Format(time.RFC3339))
	case until.Sub(now) < certificateSoon:
		p.add(LevelWarning, "%s: %s expires at %s: replace it before", name, path, end)
	default:
		p.add(LevelOK, "%s is valid until %s", name, end)
	}
}

// readCertificates reads the certificates of a PEM file. A file without certificates is an error.
func readCertificates(path string) (list []*x509.Certificate, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("it can't be read: %w", err)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s contains a certificate that can't be read: %w", path, err)
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s contains no certificate in PEM", path)
	}
	return list, nil
}
