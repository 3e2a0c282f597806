package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/hongbao-project/hongbao/internal/base/retry"
	"github.com/hongbao-project/hongbao/internal/testkit"
)

// Machine describes the machine that measured a row, and has the date.
type Machine struct {
	Date   string `json:"date"`
	Commit string `json:"commit"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Memory string `json:"memory"`
	// Versions are the versions of the programs and libraries in use, by name.
	Versions map[string]string `json:"versions"`
	// Busy is the share of processor time that other processes used in the second before the row. Stolen is the share
	// that the hypervisor has withheld since the machine started.
	Busy   float64 `json:"busy"`
	Stolen float64 `json:"stolen"`
}

// describeMachine returns the properties of this machine, and how busy other processes keep it.
func describeMachine(ctx context.Context) (Machine, error) {
	m := Machine{
		Date: time.Now().UTC().Format(time.DateOnly), Cores: runtime.NumCPU(), Commit: firstLine(ctx, "git", "rev-parse",
			"--short", "HEAD"),
		CPU: field("/proc/cpuinfo", "model name"), Memory: field("/proc/meminfo", "MemTotal"),
		Kernel: firstLine(ctx, "uname", "-sr"),
		Versions: map[string]string{
			"Go":         strings.TrimPrefix(runtime.Version(), "go"),
			"Redis":      version(ctx, "redis-server", "--version"),
			"PostgreSQL": version(ctx, "psql", "--version"),
			"MariaDB":    version(ctx, "mariadbd", "--version"),
			"Kafka":      cmp.Or(os.Getenv("HONGBAO_KAFKA_VERSION"), testkit.KafkaVersion),
		},
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "github.com/redis/go-redis/v9" {
				m.Versions["go-redis"] = dep.Version
			}
		}
	}
	before := processorTime()
	if !retry.Pause(ctx, time.Second) {
		return m, ctx.Err()
	}
	after := processorTime()
	if all := after.all - before.all; all > 0 {
		m.Busy = 1 - (after.idle-before.idle)/all
	}
	if after.all > 0 {
		m.Stolen = after.stolen / after.all
	}
	return m, nil
}

// processors has the totals of /proc/stat; all are 0 on a system without that file.
type processors struct{ all, idle, stolen float64 }

func processorTime() (p processors) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return p
	}
	line, _, _ := strings.Cut(string(data), "\n")
	for i, text := range strings.Fields(line)[1:] {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || i > 7 { // user already includes guest
			break
		}
		p.all += v
		switch i {
		case 3, 4: // idle and iowait
			p.idle += v
		case 7:
			p.stolen = v
		}
	}
	return p
}

// field returns the first value of a name in a file of lines "name: value".
func field(path, name string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		if has, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(has) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

var versionText = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)

func version(ctx context.Context, program string, args ...string) string {
	return cmp.Or(versionText.FindString(firstLine(ctx, program, args...)), "none")
}

func firstLine(ctx context.Context, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

// String returns the machine in one line.
func (m *Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s of memory, %s", m.CPU, m.Cores, m.Memory, m.Kernel)
}
