package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// composed parses compose.yaml in the same way as Compose. Unknown fields are errors.
func composed(t *testing.T, profiles ...string) *types.Project {
	t.Helper()
	return composedFrom(t, "../../compose.yaml", profiles...)
}

func composedFrom(t *testing.T, file string, profiles ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{file}, cli.WithProfiles(profiles))
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	return project
}

// ofHongbao returns the services that run Hongbao's image.
func ofHongbao(project *types.Project) (services []types.ServiceConfig) {
	for _, s := range project.Services {
		if strings.HasPrefix(s.Image, "hongbao:") {
			services = append(services, s)
		}
	}
	return services
}

// CONTRIBUTING.md sets the variables of testkit to the addresses of the servers in compose/tests.yaml.
func TestComposeOfTests(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../CONTRIBUTING.md")
	require.NoError(t, err)
	variable := map[string]string{"redis": "REDIS", "postgres": "POSTGRES", "mariadb": "MYSQL", "kafka": "KAFKA"}
	project := composedFrom(t, "../compose/tests.yaml")
	require.Len(t, project.Services, len(variable))
	for name, service := range project.Services {
		port := service.Ports[0]
		require.Equal(t, "127.0.0.1", port.HostIP, name)
		require.Regexp(t, "(?m)^    export HONGBAO_TEST_"+variable[name]+"=.*127\\.0\\.0\\.1:"+port.Published, string(page))
		require.Regexp(t, `:\d`, service.Image, "%s: the version is pinned", name)
		require.NotNil(t, service.HealthCheck, name)
	}
	redis := strings.Join(project.Services["redis"].Command, " ")
	require.Contains(t, redis, "--appendonly yes --maxmemory-policy noeviction", "testkit requires these settings of a Redis")
	kafka := project.Services["kafka"].Environment
	require.Contains(t, *kafka["KAFKA_LISTENERS"], ":"+project.Services["kafka"].Ports[0].Published,
		"the broker connects to itself at its advertised address")
}

// Without a profile, compose.yaml starts the three servers; with profile all, it starts everything. Image versions are
// pinned, ports are reachable from this machine only, mounted files exist, and each long-running service has a health
// check.
func TestCompose(t *testing.T) {
	t.Parallel()
	require.ElementsMatch(t, []string{"redis", "postgres", "kafka"}, composed(t).ServiceNames())
	project := composed(t, "all")
	require.ElementsMatch(t, []string{"redis", "postgres", "kafka", "init", "serve", "work", "prometheus", "grafana"},
		project.ServiceNames())
	require.Equal(t, "replicated", project.Services["work"].Deploy.Mode, "Podman Compose ignores replicas in other modes")
	for name, s := range project.Services {
		require.Regexp(t, `^[a-z/]+:v?[0-9][0-9.]*$`, s.Image, name)
		require.Equal(t, name != "init", s.HealthCheck != nil, name)
		require.Empty(t, s.Restart, "%s: after a reboot nothing may start alone", name)
		for _, p := range s.Ports {
			require.Equal(t, "127.0.0.1", p.HostIP, name)
			require.Equal(t, fmt.Sprint(p.Target), p.Published, name)
		}
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeVolume {
				require.Contains(t, project.Volumes, v.Source, name)
				continue
			}
			info, err := os.Stat(v.Source)
			require.NoError(t, err, name)
			require.True(t, info.Mode().IsRegular() && v.ReadOnly, "%s: %s", name, v.Source)
			require.Equal(t, "z", v.Bind.SELinux, "%s: %s", name, v.Source)
		}
	}
}

// `up --wait` fails if a service has exited and no other service depends on its completion. So each Hongbao service
// depends on the completion of init.
func TestComposeOrder(t *testing.T) {
	t.Parallel()
	project := composed(t, "all")
	for _, name := range []string{"redis", "postgres", "kafka"} {
		require.Equal(t, types.ServiceConditionHealthy, project.Services["init"].DependsOn[name].Condition)
	}
	for _, name := range []string{"serve", "work"} {
		require.Equal(t, types.ServiceConditionCompletedSuccessfully, project.Services[name].DependsOn["init"].Condition)
	}
}

// The program accepts each command and variable that compose.yaml gives it. The containers have the least privileges.
// Compose waits longer before it kills a container than the container needs to drain.
func TestComposeHongbao(t *testing.T) {
	t.Parallel()
	services := ofHongbao(composed(t, "all"))
	require.Len(t, services, 3)
	var chart struct{ AppVersion string }
	text, err := os.ReadFile("../chart/Chart.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &chart))
	for i := range services {
		s := &services[i]
		require.Equal(t, "hongbao:"+chart.AppVersion, s.Image)
		require.Equal(t, s.Name == "init", s.Build != nil, "only init builds the image: Compose refuses two builds of one tag")
		if s.Build == nil {
			require.Equal(t, types.PullPolicyNever, s.PullPolicy, s.Name)
			require.Contains(t, s.DependsOn, "init", "%s must start after the image is built", s.Name)
		} else {
			_, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile))
			require.NoError(t, err)
		}
		require.True(t, s.ReadOnly && len(s.Volumes) == 0, s.Name)
		require.Equal(t, []string{"ALL"}, s.CapDrop)
		require.Equal(t, []string{"no-new-privileges:true"}, s.SecurityOpt)
		out, err := exec.CommandContext(t.Context(), program(t), append(s.Command, "--help")...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		knobs := composeKnobs(t, s)
		switch s.Command[0] {
		case "serve":
			checkGrace(t, s, knobs, "serve.drain_delay", "serve.drain_timeout", "producer.call_timeout")
		case "work":
			checkGrace(t, s, knobs, "consumer.drain_timeout")
		}
	}
}

func composeEnv(s *types.ServiceConfig) (env []string) {
	for name, value := range s.Environment {
		env = append(env, name+"="+*value)
	}
	return env
}

func composeKnobs(t *testing.T, s *types.ServiceConfig) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t), "config", "check", "--json")
	cmd.Env = append(composeEnv(s), "PATH="+os.Getenv("PATH"))
	var says bytes.Buffer
	cmd.Stderr = &says
	out, err := cmd.Output()
	require.NoError(t, err, "%s: %s", s.Name, &says)
	return settings(t, out)
}

func checkGrace(t *testing.T, s *types.ServiceConfig, knobs map[string]string, parts ...string) {
	t.Helper()
	var sum time.Duration
	for _, knob := range parts {
		d, err := time.ParseDuration(knobs[knob])
		require.NoError(t, err, knob)
		sum += d
	}
	require.Greater(t, time.Duration(*s.StopGracePeriod), sum, "%s is killed before it is drained", s.Name)
}

// composeFile returns the content of the file that a service mounts at a path.
func composeFile(t *testing.T, s *types.ServiceConfig, path string) []byte {
	t.Helper()
	for _, v := range s.Volumes {
		if v.Target == path {
			text, err := os.ReadFile(v.Source)
			require.NoError(t, err)
			return text
		}
	}
	require.Fail(t, "nothing is mounted", "%s: %s", s.Name, path)
	return nil
}

// Prometheus accepts the arguments in compose.yaml and loads the generated alert rules. It scrapes the ops port of each
// Hongbao service, under job names that the rules expect.
func TestComposePrometheus(t *testing.T) {
	t.Parallel()
	project := composed(t, "all")
	s := project.Services["prometheus"]
	help, err := exec.CommandContext(t.Context(), "prometheus", "--help").CombinedOutput()
	require.NoError(t, err)
	config, dir := "", t.TempDir()
	for _, arg := range s.Command {
		flag, value, _ := strings.Cut(arg, "=")
		require.Contains(t, string(help), flag+"=")
		if flag == "--config.file" {
			config = value
		}
	}
	text := composeFile(t, &s, config)
	for _, v := range s.Volumes {
		if filepath.Dir(v.Target) == filepath.Dir(config) {
			file := composeFile(t, &s, v.Target)
			require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(v.Target)), file, 0o600))
		}
	}
	out, err := exec.CommandContext(t.Context(), "promtool", "check", "config", filepath.Join(dir, filepath.Base(config))).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `SUCCESS: \d+ rules found`, string(out))

	var jobs struct {
		ScrapeConfigs []struct {
			JobName string `json:"job_name"`
			DNS     []struct {
				Names []string
				Port  int
			} `json:"dns_sd_configs"`
		} `json:"scrape_configs"`
	}
	require.NoError(t, yaml.Unmarshal(text, &jobs))
	require.Len(t, jobs.ScrapeConfigs, 2)
	for _, job := range jobs.ScrapeConfigs {
		require.Regexp(t, "^hongbao", job.JobName)
		asked, ok := project.Services[job.DNS[0].Names[0]]
		require.True(t, ok, job.JobName)
		listen := *asked.Environment["HONGBAO_"+strings.ToUpper(asked.Command[0])+"_OPS_LISTEN"]
		require.Equal(t, fmt.Sprintf("0.0.0.0:%d", job.DNS[0].Port), listen)
	}
}

// Grafana has the address of Prometheus, and loads the generated dashboard as its home page.
func TestComposeGrafana(t *testing.T) {
	t.Parallel()
	project := composed(t, "all")
	s := project.Services["grafana"]
	var sources struct {
		APIVersion  int
		Datasources []struct {
			Name, UID, Type, Access, URL string
			IsDefault                    bool
		}
	}
	require.NoError(t, yaml.UnmarshalStrict(composeFile(t, &s, "/etc/grafana/provisioning/datasources/hongbao.yaml"), &sources))
	require.Equal(t, "prometheus", sources.Datasources[0].Type)
	require.True(t, sources.Datasources[0].IsDefault, "the dashboard's variable defaults to it")
	require.Equal(t, fmt.Sprintf("http://prometheus:%d", project.Services["prometheus"].Ports[0].Target), sources.Datasources[0].URL)

	var boards struct {
		APIVersion int
		Providers  []struct {
			Name, Type string
			Options    struct{ Path string }
		}
	}
	require.NoError(t, yaml.UnmarshalStrict(composeFile(t, &s, "/etc/grafana/provisioning/dashboards/hongbao.yaml"), &boards))
	home := *s.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	require.Equal(t, filepath.Dir(home), boards.Providers[0].Options.Path)
	var board struct{ UID string }
	require.NoError(t, json.Unmarshal(composeFile(t, &s, home), &board))
	require.Equal(t, "hongbao", board.UID)
	for name := range s.Environment {
		require.Regexp(t, `^GF_[A-Z_]+$`, name)
	}
}

// The Kafka image turns its variables into properties, and Kafka accepts these. The services and this machine each use
// an advertised listener.
func TestComposeKafka(t *testing.T) {
	t.Parallel()
	project := composed(t, "all")
	s := project.Services["kafka"]
	var properties strings.Builder
	for name, value := range s.Environment {
		key, ok := strings.CutPrefix(name, "KAFKA_")
		require.True(t, ok, name)
		if key = strings.ReplaceAll(strings.ToLower(key), "_", "."); key == "log.dirs" {
			*value = t.TempDir()
		}
		properties.WriteString(key + "=" + *value + "\n")
	}
	path := filepath.Join(t.TempDir(), "server.properties")
	require.NoError(t, os.WriteFile(path, []byte(properties.String()), 0o600))
	_, version, _ := strings.Cut(s.Image, ":")
	libs := filepath.Join(cached(t, "kafka-"+version, "libs"), "*")
	out, err := exec.CommandContext(t.Context(), "java", "-cp", libs, "kafka.tools.StorageTool", "format",
		"-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "Formatting")

	advertised := *s.Environment["KAFKA_ADVERTISED_LISTENERS"]
	for _, h := range ofHongbao(project) {
		require.Contains(t, advertised, "//"+*h.Environment["HONGBAO_KAFKA_BROKERS"])
	}
	require.Regexp(t, regexp.QuoteMeta(fmt.Sprintf("//127.0.0.1:%d", s.Ports[0].Target)), advertised)
}
