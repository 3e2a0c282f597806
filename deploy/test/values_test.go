package test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chartutil"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// withValues returns the values of ci/small-values.yaml, overridden by text.
func withValues(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &values))
	return chartutil.CoalesceTables(values, readValues(t, "../chart/ci/small-values.yaml"))
}

const zero = "work: {autoscaling: {kind: keda, minReplicas: 0, prometheus: 'http://p'}}"

// Helm refuses values that contradict each other, before anything is sent to Kubernetes.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ values, says string }{
		"unknown value":       {"serv: {}", "serv"},
		"password in the env": {"env: {PASSWORD: x}", "PASSWORD"},
		"secret as a text":    {"secrets: {HONGBAO_REDIS_PASSWORD: hunter2}", "HONGBAO_REDIS_PASSWORD"},
		"issuer without keys": {"serve: {keys: {url: ''}}", "or remove the two"},
		"no one can grab":     {"serve: {keys: {url: ''}}\ncontrol: {enabled: false}\nsecrets: null\nconfig: {serve: null}", "no one could grab"},
		"two sources of keys": {"serve: {keys: {secret: x}}", "not both"},
		"keys in clear text":  {"serve: {keys: {url: 'http://id.example.com'}}", "serve"},
		"what the chart sets": {"config: {serve: {listen: '0.0.0.0:1'}}", "config.serve.listen: the chart sets it"},
		"sink without worker": {"work: {sinks: {kafka: {enabled: false}}}", "no Deployment works for"},
		"worker without sink": {"config: {deployment: {sinks: [kafka]}}", "has no such sink"},
		"unknown sink":        {"work: {sinks: {mail: {enabled: true}}}", "work.sinks.mail: config.deployment.sinks has no such sink"},
		"name of a sink":      {"work: {sinks: {my-mail: {}}}", "my-mail"},
		"webhook without worker": {"config: {deployment: {sinks: [balance, kafka, crm]}, webhook: {crm: {url: 'https://crm'}}}",
			"config.deployment.sinks has crm, which no Deployment works for"},
		"own sink without image": {"config: {deployment: {sinks: [balance, points]}, own: {points: {program: points}}}\n" +
			"work: {sinks: {kafka: {enabled: false}, points: {enabled: true}}}", "config.own.points: work.sinks.points.image must name the image"},
		"own image without a tag":  {"work: {sinks: {kafka: {image: {repository: r}}}}", "image"},
		"not a digest":             {"image: {digest: latest}", "digest"},
		"hpa at zero":              {"work: {autoscaling: {kind: hpa, minReplicas: 0}}", "at least one worker"},
		"keda without control":     {"control: {enabled: false}\n" + zero, "no process reports that grants wait"},
		"control without a ledger": {"secrets: null", "control: the ledger has the API keys"},
		"bounds of serve":          {"serve: {autoscaling: {enabled: true, minReplicas: 20}}", "minReplicas is above maxReplicas"},
		"share of nothing": {"serve: {autoscaling: {enabled: true}, resources: {requests: {cpu: null}}}",
			"resources.requests.cpu"},
		"too many connections": {"config: {serve: {connections: 60000}}",
			"1536Mi is too little for serve.connections 60000: with TLS they need 2590 MB (38 KB each, and 310 MB), " +
				"and Go may use four fifths of the limit, 1287 MB: raise the limit to 3088Mi"},
		"too many in the environment": {"serve: {env: {HONGBAO_SERVE_CONNECTIONS: 60000}}", "serve.connections 60000"},
		"memory in another form":      {"serve: {resources: {limits: {memory: 1e9}}}", "memory"},
		"ingress without a host":      {"serve: {ingress: {enabled: true}}", "name at least one host"},
		"route without a gateway":     {"serve: {httpRoute: {enabled: true}}", "name the Gateway"},
		"variable with a number":      {"work: {extraEnv: [{name: GOMAXPROCS, value: 2}]}", "value"},
		"argument without dashes":     {"work: {extraArgs: [x]}", "extraArgs"},
		"variable without a name":     {"work: {extraEnv: [{value: x}]}", "name"},
		"open administration":         {"control: {service: {enabled: true}}", "say who reaches administration"},
		"administration in serve": {"serve: {control: {enabled: false}}",
			"serve.control: administration has pods of its own now: remove serve.control, and set control.enabled"},
		"half a replica": {"serve: {replicas: 0.5}", "replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := render(withValues(t, c.values))
			require.ErrorContains(t, err, c.says)
		})
	}
}

// A component's own variable overrides the common variable, even with an empty value. Large numbers are not rendered in
// scientific notation.
func TestVariablesOfAPart(t *testing.T) {
	t.Parallel()
	r := newRendered(t, withValues(t, `
env: {HONGBAO_REDIS_TLS: true, HONGBAO_PRODUCER_MAX_BACKLOG: 5000000, HONGBAO_REDIS_DB: 3, HONGBAO_REDIS_USERNAME: all}
work: {env: {HONGBAO_REDIS_TLS: false, HONGBAO_REDIS_DB: 0, HONGBAO_REDIS_USERNAME: "", GOMEMLIMIT: 100MiB}}
serve: {resources: {limits: {memory: 2G}}}
init: {resources: {limits: {memory: 500000000}}}
audit: {resources: {limits: {memory: 1.5Gi}}}
`))
	env := func(name string) map[string]string {
		all := map[string]string{}
		for _, e := range r.pods[name].Spec.Containers[0].Env {
			if e.ValueFrom == nil {
				all[e.Name] = e.Value
			}
		}
		return all
	}
	const config, file = "HONGBAO_CONFIG", "/etc/hongbao/config/hongbao.yaml"
	require.Equal(t, map[string]string{"HONGBAO_REDIS_TLS": "true", "HONGBAO_PRODUCER_MAX_BACKLOG": "5000000",
		"HONGBAO_REDIS_DB": "3", "HONGBAO_REDIS_USERNAME": "all", "GOMEMLIMIT": "1525MiB", config: file},
		env("hongbao-serve"))
	require.Equal(t, map[string]string{"HONGBAO_REDIS_TLS": "false", "HONGBAO_PRODUCER_MAX_BACKLOG": "5000000",
		"HONGBAO_REDIS_DB": "0", "HONGBAO_REDIS_USERNAME": "", "GOMEMLIMIT": "100MiB", config: file},
		env("hongbao-work-kafka"))
	require.Equal(t, "381MiB", env("hongbao-init")["GOMEMLIMIT"])
	require.Equal(t, "1228MiB", env("hongbao-audit")["GOMEMLIMIT"])
}

// A webhook has workers of its own, and only they have its secret.
func TestWebhook(t *testing.T) {
	t.Parallel()
	const secret = "HONGBAO_WEBHOOK_CRM_SECRET"
	r := newRendered(t, withValues(t, `
config: {deployment: {sinks: [balance, kafka, crm]}, webhook: {crm: {url: "https://crm.example.com/hongbao"}}}
work: {sinks: {crm: {enabled: true, replicas: 3, secrets: {HONGBAO_WEBHOOK_CRM_SECRET: {name: crm, key: signing}}}}}
`))
	require.EqualValues(t, 3, *named[*appsv1.Deployment](r, "hongbao-work-crm").Spec.Replicas)
	require.Contains(t, r.pods["hongbao-work-crm"].Spec.Containers[0].Args, "--sink=crm")
	for name, pod := range r.pods {
		has := slices.ContainsFunc(pod.Spec.Containers[0].Env, func(e corev1.EnvVar) bool { return e.Name == secret })
		require.Equal(t, name == "hongbao-work-crm", has, name)
	}
}

// The workers of a sink of one's own run the image of its program, with the chart's arguments and the shared
// configuration. Everything else runs Hongbao's image.
func TestOwnSink(t *testing.T) {
	t.Parallel()
	r := newRendered(t, withValues(t, `
image: {repository: registry.internal/hongbao, digest: "sha256:`+strings.Repeat("a", 64)+`"}
config: {deployment: {sinks: [balance, points]}, own: {points: {program: points of team CRM}}}
work: {sinks: {kafka: {enabled: false}, points: {enabled: true, image: {repository: registry.internal/points, tag: "7"}}}}
`))
	for name, pod := range r.pods {
		c := pod.Spec.Containers[0]
		if name != "hongbao-work-points" {
			require.True(t, strings.HasPrefix(c.Image, "registry.internal/hongbao@sha256:"), "%s: %s", name, c.Image)
			continue
		}
		require.Equal(t, "registry.internal/points:7", c.Image)
		require.Equal(t, corev1.PullIfNotPresent, c.ImagePullPolicy)
		require.Contains(t, c.Args, "--sink=points")
	}
	require.Contains(t, r.pods, "hongbao-work-points")
}

// The chart's checks and queries use the program's own defaults.
func TestDefaultsOfTheProgram(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/configuration.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "| `serve.connections` | integer | `20000` |")
	_, err = render(withValues(t, "serve: {resources: {limits: {memory: 1Gi}}}"))
	require.ErrorContains(t, err, "serve.connections 20000")
	require.Contains(t, string(page), "| `deployment.id` | text | `hongbao` |")
	r := newRendered(t, withValues(t, "work: {autoscaling: {kind: hpa}}"))
	metric := named[*autoscalingv2.HorizontalPodAutoscaler](r, "hongbao-work-kafka").Spec.Metrics[0].External.Metric
	require.Equal(t, "hongbao", metric.Selector.MatchLabels["deployment"])
}

// A component's own lists reach its pod. A variable of extraEnv replaces the one with the same name.
func TestExtraLists(t *testing.T) {
	t.Parallel()
	for part, name := range map[string]string{"init": "hongbao-init", "serve": "hongbao-serve",
		"control": "hongbao-control", "work": "hongbao-work-kafka", "audit": "hongbao-audit"} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			flags := map[bool]string{true: "args", false: "extraArgs"}[part == "audit"]
			r := newRendered(t, withValues(t, part+":\n  "+flags+`: [--redis.pool_size=7]
  extraEnv:
    - {name: HONGBAO_LEDGER_DSN, value: other}
    - {name: GOMAXPROCS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
  extraVolumes: [{name: tmp, emptyDir: {}}]
  extraVolumeMounts: [{name: tmp, mountPath: /tmp}]
  extraContainers: [{name: beside, image: beside:1}]
  initContainers: [{name: before, image: before:1}]
`))
			pod := r.pods[name].Spec
			c := pod.Containers[0]
			require.Contains(t, c.Args, "--redis.pool_size=7")
			env := map[string]corev1.EnvVar{}
			for _, e := range c.Env {
				require.NotContains(t, env, e.Name)
				env[e.Name] = e
			}
			require.Equal(t, corev1.EnvVar{Name: "HONGBAO_LEDGER_DSN", Value: "other"}, env["HONGBAO_LEDGER_DSN"])
			require.Equal(t, "limits.cpu", env["GOMAXPROCS"].ValueFrom.ResourceFieldRef.Resource)
			require.Equal(t, "/tmp", c.VolumeMounts[len(c.VolumeMounts)-1].MountPath)
			require.NotNil(t, pod.Volumes[len(pod.Volumes)-1].EmptyDir)
			require.Equal(t, "beside", pod.Containers[1].Name)
			require.Equal(t, "before", pod.InitContainers[0].Name)
			for other, template := range r.pods {
				require.True(t, len(template.Spec.Containers) == 1 || other == name || part == "work", other)
			}
		})
	}
}

// Administration has one pod of its own, with probes and without an autoscaler. Its Service and its NetworkPolicy select
// only that pod. Without the Service it listens on the pod's loopback. serve has no control listener.
func TestControl(t *testing.T) {
	t.Parallel()
	r := newRendered(t, readValues(t, "../chart/ci/control-values.yaml"))
	control := named[*appsv1.Deployment](r, "hongbao-control").Spec
	require.EqualValues(t, 1, *control.Replicas)
	c := control.Template.Spec.Containers[0]
	require.Equal(t, "control", c.Args[0])
	require.Contains(t, c.Args, "--control.listen=0.0.0.0:8081")
	require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
	service := named[*corev1.Service](r, "hongbao-control").Spec
	require.Equal(t, control.Selector.MatchLabels, service.Selector)
	require.Equal(t, "control", service.Selector["app.kubernetes.io/component"])
	policy := named[*networkingv1.NetworkPolicy](r, "hongbao-control").Spec
	require.Equal(t, service.Selector, policy.PodSelector.MatchLabels)
	require.EqualValues(t, 8081, policy.Ingress[0].Ports[0].Port.IntVal)
	require.NotContains(t, fmt.Sprint(r.pods["hongbao-serve"].Spec), "control")
	for _, o := range r.objects {
		_, scaled := o.(*autoscalingv2.HorizontalPodAutoscaler)
		require.False(t, scaled && strings.Contains(o.GetName(), "control"))
	}
	small := newRendered(t, readValues(t, "../chart/ci/small-values.yaml"))
	require.Contains(t, small.pods["hongbao-control"].Spec.Containers[0].Args, "--control.listen=127.0.0.1:8081")
	for _, o := range small.objects {
		require.False(t, o.GetName() == "hongbao-control" && fmt.Sprintf("%T", o) != "*v1.Deployment", "%T", o)
	}
	require.NotContains(t, newRendered(t, readValues(t, "../chart/ci/embedded-values.yaml")).pods, "rain-control")
}

// The HorizontalPodAutoscaler of serve has the chart's default behaviour, except for what the values change.
func TestServeScales(t *testing.T) {
	t.Parallel()
	r := newRendered(t, readValues(t, "../chart/ci/ingress-values.yaml"))
	h := named[*autoscalingv2.HorizontalPodAutoscaler](r, "hongbao-serve").Spec
	require.Equal(t, []int32{4, 40, 70}, []int32{*h.MinReplicas, h.MaxReplicas,
		*h.Metrics[0].Resource.Target.AverageUtilization})
	require.Equal(t, corev1.ResourceCPU, h.Metrics[0].Resource.Name)
	require.EqualValues(t, 1800, *h.Behavior.ScaleDown.StabilizationWindowSeconds)
	require.Len(t, h.Behavior.ScaleDown.Policies, 1)
	require.EqualValues(t, 0, *h.Behavior.ScaleUp.StabilizationWindowSeconds)
	r = newRendered(t, readValues(t, "../chart/ci/small-values.yaml"))
	small := named[*appsv1.Deployment](r, "hongbao-serve").Spec
	require.EqualValues(t, 2, *small.Replicas)
	require.EqualValues(t, 5, small.MinReadySeconds)
}

// The chart's notes have three commands. Each runs hongbao in a Deployment, or connects to a Service, that exists.
func TestNotes(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"small", "embedded"} {
		values := readValues(t, "../chart/ci/"+file+"-values.yaml")
		r := newRendered(t, values)
		files, err := renderFiles(values)
		require.NoError(t, err)
		notes := files["hongbao/templates/NOTES.txt"]
		require.Equal(t, 3, strings.Count(notes, "kubectl -n money "), notes)
		for _, m := range regexp.MustCompile(`exec deploy/(\S+) -- hongbao (.*)`).FindAllStringSubmatch(notes, -1) {
			named[*appsv1.Deployment](r, m[1])
			out, err := exec.Command(program(t), append(strings.Fields(m[2]), "--help")...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Contains(t, string(out), "\n  hongbao "+m[2]+" [flags]\n")
		}
		for _, m := range regexp.MustCompile(`service/(\S+) 8080:(\d+)`).FindAllStringSubmatch(notes, -1) {
			require.Equal(t, m[2], fmt.Sprint(named[*corev1.Service](r, m[1]).Spec.Ports[0].Port))
		}
	}
}

// The chart's alerts and dashboard are those of deploy/alerts and deploy/grafana. By default it has no resources of the
// Prometheus operator.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	r := newRendered(t, readValues(t, "../chart/ci/control-values.yaml"))
	text, err := os.ReadFile("../alerts/hongbao.rules.yaml")
	require.NoError(t, err)
	var want monitoringv1.PrometheusRuleSpec
	require.NoError(t, yaml.UnmarshalStrict(text, &want))
	rules := named[*monitoringv1.PrometheusRule](r, "hongbao")
	require.Greater(t, len(want.Groups[0].Rules), 20)
	require.Equal(t, want, rules.Spec)
	require.Equal(t, "prometheus", rules.Labels["release"])
	monitor := named[*monitoringv1.PodMonitor](r, "hongbao")
	require.Equal(t, "prometheus", monitor.Labels["release"])
	require.EqualValues(t, "15s", monitor.Spec.PodMetricsEndpoints[0].Interval)
	dashboard := named[*corev1.ConfigMap](r, "hongbao-dashboard")
	text, err = os.ReadFile("../grafana/hongbao.json")
	require.NoError(t, err)
	require.JSONEq(t, string(text), dashboard.Data["hongbao.json"])
	require.Equal(t, []string{"1", "Money"}, []string{dashboard.Labels["grafana_dashboard"],
		dashboard.Annotations["grafana_folder"]})
	for _, o := range newRendered(t, readValues(t, "../chart/ci/small-values.yaml")).objects {
		require.NotEqual(t, "hongbao-dashboard", o.GetName())
		require.NotContains(t, []string{"*v1.PodMonitor", "*v1.PrometheusRule"}, fmt.Sprintf("%T", o))
	}
}

// The CronJob seals by default. audit.args replaces the flags.
func TestFlagsOfTheAudit(t *testing.T) {
	t.Parallel()
	flags := func(own string) []string {
		values := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(own), &values))
		r := newRendered(t, chartutil.CoalesceTables(values, readValues(t, "../chart/ci/small-values.yaml")))
		args := r.pods["hongbao-audit"].Spec.Containers[0].Args
		return args[:len(args)-1] // without --log.format
	}
	require.Equal(t, []string{"audit", "--wait=1m", "--json", "--seal"}, flags(`{}`))
	require.Equal(t, []string{"audit", "--wait=1m", "--json"}, flags(`audit: {args: []}`))
	require.Equal(t, []string{"audit", "--wait=1m", "--json", "--full"}, flags(`audit: {args: [--full]}`))
	_, err := render(chartutil.CoalesceTables(map[string]any{"audit": map[string]any{"args": []any{"last"}}},
		readValues(t, "../chart/ci/small-values.yaml")))
	require.ErrorContains(t, err, "/audit/args")
}
