package dev

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// Site has the addresses and keys of the development server.
type Site struct {
	API     string `json:"api"`
	Console string `json:"console"`
	Metrics string `json:"metrics"`
	// LogIn is a link that logs in to the console, once and within ten minutes; empty if the console is not on loopback.
	LogIn string `json:"log_in,omitempty"`
	// Key has the role treasurer, for the console and the administration API. GatewayKey has the role gateway, which
	// may grab for any user.
	Key        string `json:"key"`
	GatewayKey string `json:"gateway_key"`
	// Campaign is open and has packets left.
	Campaign string `json:"campaign"`
	// Config is the configuration file, for other commands.
	Config string `json:"config"`
	// Redis, Kafka and Topic are for a program with package producer, consumer or subscriber: host:port, and the topic.
	// The deployment has the default id, key prefix and number of shards.
	Redis string `json:"redis"`
	Kafka string `json:"kafka"`
	Topic string `json:"topic"`
	// DataDir is empty if no data is kept.
	DataDir string `json:"data_dir,omitempty"`

	program string
	mayKeep bool // whether the command has the flag --data-dir
}

// address returns the URL at which a browser on this machine reaches a listener. With TLS, it uses the listener's
// configured name if there is one, because a certificate belongs to a name.
func address(at net.Addr, listen string, tls bool) string {
	scheme, host := "http", at.String()
	bound, err := netip.ParseAddrPort(host)
	if err == nil && bound.Addr().IsUnspecified() {
		host = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), bound.Port()).String()
	}
	if tls {
		scheme = "https"
		name, _, _ := net.SplitHostPort(listen) // the listener is open, so its address is valid
		if _, noAddress := netip.ParseAddr(name); name != "" && noAddress != nil {
			host = net.JoinHostPort(name, strconv.Itoa(int(bound.Port())))
		}
	}
	return scheme + "://" + host
}

// Write prints the site as text, with commands to copy. Each command is one line and ends by itself.
func (s *Site) Write(w io.Writer) error {
	kept := "Ctrl-C stops all of it, and nothing is left"
	if s.mayKeep {
		kept += "; --data-dir FOLDER would keep it"
	}
	if s.DataDir != "" {
		kept = "Ctrl-C stops all of it; " + s.DataDir + " keeps what was done"
	}
	logIn := ""
	if s.LogIn != "" {
		logIn = "log in    " + s.LogIn + "\n          opens the console; the link works once, within ten minutes\n"
	}
	_, err := fmt.Fprintf(w, `api       %s
console   %s
%sfaults    %s/faults, to break something and watch
metrics   %s/metrics
logs      %s, of the workers
key       %s
          for the console and administration; it may do everything, and ends with this process
campaign  %s, open; watch it with
          %s

A user grabs, what he holds, the campaign, the metrics:

%s

What is in the topic, and whether Redis, ledger and topic agree:

%s

Every command of %s works with --config %s
%s

`, s.API, s.Console, logIn, s.Console, s.Metrics,
		quoted(filepath.Dir(s.Config))+"/worker-*.log", s.Key, s.Campaign, quoted(s.program)+" campaign watch "+s.Campaign+" --config "+quoted(s.Config),
		strings.Join(s.curls(), "\n"), strings.Join(s.commands(), "\n"),
		quoted(s.program), quoted(s.Config), kept)
	if err != nil {
		return fmt.Errorf("print the addresses: %w", err)
	}
	return nil
}

func (s *Site) curls() []string {
	campaign := s.API + "/v1/campaigns/" + s.Campaign
	return []string{
		`curl -s -H 'Authorization: Bearer ` + s.GatewayKey + `' -H 'Content-Type: application/json' -d ` +
			`'{"grabs": [{"user": "u1", "request_id": "r1"}]}' ` + campaign + `/grabs:batch`,
		`curl -s -H 'Authorization: Bearer ` + s.GatewayKey + `' '` + campaign + `/grabs?user=u1'`,
		`curl -s ` + campaign,
		`curl -s ` + s.Metrics + `/metrics`,
	}
}

func (s *Site) commands() []string {
	program, config := quoted(s.program), quoted(s.Config)
	return []string{
		program + " tail --config " + config + " --limit 5",
		program + " audit --config " + config + " --wait 30s",
	}
}

// env returns the addresses and keys as shell variables.
func (s *Site) env() string {
	var b strings.Builder
	for _, v := range [][2]string{{"HONGBAO_CONFIG", s.Config}, {"API", s.API}, {"CONSOLE", s.Console},
		{"METRICS", s.Metrics}, {"KEY", s.Key}, {"GATEWAY_KEY", s.GatewayKey}, {"CAMPAIGN", s.Campaign},
		{"REDIS", s.Redis}, {"KAFKA", s.Kafka}, {"TOPIC", s.Topic}} {
		fmt.Fprintf(&b, "export %s=%s\n", v[0], quoted(v[1]))
	}
	return b.String()
}

// quoted quotes a text for a shell, if necessary.
func quoted(text string) string {
	if strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-:@%+=,") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
