package test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// kinds returns an empty object for each kind that the chart may render.
func kinds() map[string]metav1.Object {
	return map[string]metav1.Object{
		"v1/ConfigMap": &corev1.ConfigMap{}, "v1/Service": &corev1.Service{}, "v1/ServiceAccount": &corev1.ServiceAccount{},
		"apps/v1/Deployment": &appsv1.Deployment{}, "batch/v1/Job": &batchv1.Job{}, "batch/v1/CronJob": &batchv1.CronJob{},
		"autoscaling/v2/HorizontalPodAutoscaler":  &autoscalingv2.HorizontalPodAutoscaler{},
		"keda.sh/v1alpha1/ScaledObject":           &scaledObject{},
		"policy/v1/PodDisruptionBudget":           &policyv1.PodDisruptionBudget{},
		"networking.k8s.io/v1/NetworkPolicy":      &networkingv1.NetworkPolicy{},
		"networking.k8s.io/v1/Ingress":            &networkingv1.Ingress{},
		"gateway.networking.k8s.io/v1/HTTPRoute":  &gatewayv1.HTTPRoute{},
		"monitoring.coreos.com/v1/PodMonitor":     &monitoringv1.PodMonitor{},
		"monitoring.coreos.com/v1/PrometheusRule": &monitoringv1.PrometheusRule{},
	}
}

// `helm lint --strict` accepts the chart with the default values and with each of the example values, and rejects a wrong
// value.
func TestHelmLint(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../chart/ci/*-values.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range append(files, "../chart/values.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			values, err := chartutil.ReadValuesFile(file)
			require.NoError(t, err)
			for _, m := range lint.All("../chart", values, "money", true).Messages {
				require.Less(t, m.Severity, support.WarningSev, m.Error())
			}
		})
	}
	wrong := map[string]any{"serve": map[string]any{"replicas": "many"}}
	require.GreaterOrEqual(t, lint.All("../chart", wrong, "money", true).HighestSeverity, support.WarningSev)
}

// renderFiles returns the texts that Helm renders, by the names of the templates.
func renderFiles(values map[string]any) (map[string]string, error) {
	chart, err := loader.Load("../chart")
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(chart, values,
		chartutil.ReleaseOptions{Name: "hongbao", Namespace: "money", Revision: 1, IsInstall: true},
		chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// render returns the manifests that Helm would send to Kubernetes, each decoded into its Go type. An unknown field, a
// duplicate field or a wrong case is an error.
func render(values map[string]any) ([]metav1.Object, error) {
	files, err := renderFiles(values)
	if err != nil {
		return nil, err
	}
	var out []metav1.Object
	for name, text := range files {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, manifest := range releaseutil.SplitManifests(text) {
			object, err := decode(manifest)
			if err != nil {
				return nil, fmt.Errorf("%s: %w in\n%s", name, err, manifest)
			}
			if object != nil {
				out = append(out, object)
			}
		}
	}
	return out, nil
}

func decode(manifest string) (metav1.Object, error) {
	text, err := yaml.YAMLToJSONStrict([]byte(manifest))
	if err != nil || string(text) == "null" {
		return nil, err
	}
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return nil, err
	}
	object := kinds()[kind.APIVersion+"/"+kind.Kind]
	if object == nil {
		return nil, fmt.Errorf("%s/%s: the chart has no such kind", kind.APIVersion, kind.Kind)
	}
	strict, err := kjson.UnmarshalStrict(text, object)
	return object, errors.Join(append(strict, err)...)
}

func readValues(t *testing.T, path string) map[string]any {
	t.Helper()
	values, err := chartutil.ReadValuesFile(path)
	require.NoError(t, err)
	return values
}

// rendered contains a chart's manifests, indexed for the tests.
type rendered struct {
	t       *testing.T
	objects []metav1.Object
	pods    map[string]corev1.PodTemplateSpec // by the name of the object that creates them
}

func newRendered(t *testing.T, values map[string]any) *rendered {
	t.Helper()
	objects, err := render(values)
	require.NoError(t, err)
	r := &rendered{t: t, objects: objects, pods: map[string]corev1.PodTemplateSpec{}}
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			r.pods[o.Name] = o.Spec.Template
		case *batchv1.Job:
			r.pods[o.Name] = o.Spec.Template
		case *batchv1.CronJob:
			r.pods[o.Name] = o.Spec.JobTemplate.Spec.Template
		}
	}
	return r
}

// named returns the only object with this type and name.
func named[T metav1.Object](r *rendered, name string) T {
	r.t.Helper()
	var found T
	n := 0
	for _, o := range r.objects {
		if x, ok := o.(T); ok && o.GetName() == name {
			found, n = x, n+1
		}
	}
	require.Equal(r.t, 1, n, "%T %s", found, name)
	return found
}

// selected returns the pods that a selector matches.
func (r *rendered) selected(s map[string]string) (names []string) {
	for name, pod := range r.pods {
		if labels.SelectorFromSet(s).Matches(labels.Set(pod.Labels)) {
			names = append(names, name)
		}
	}
	return names
}

// Each values file of the chart renders to manifests that decode strictly into Kubernetes' own types. References
// between the manifests are correct, and Hongbao accepts the commands and the configuration of the pods.
func TestChart(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../chart/ci/*-values.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(paths), 3)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			r := newRendered(t, readValues(t, path))
			for name, pod := range r.pods {
				r.checkPod(name, &pod)
				r.checkProcess(name, &pod)
			}
			for _, o := range r.objects {
				r.checkReferences(o)
			}
			r.checkUnique()
		})
	}
}

// checkUnique requires that each name is unique within its kind.
func (r *rendered) checkUnique() {
	seen := map[string]bool{}
	for _, o := range r.objects {
		key := fmt.Sprintf("%T %s", o, o.GetName())
		require.False(r.t, seen[key], key)
		require.LessOrEqual(r.t, len(o.GetName()), 52, "Kubernetes appends to this name for a CronJob's Jobs and pods")
		seen[key] = true
	}
}

// checkReferences requires that every selector matches pods, and that every target port exists in those pods.
func (r *rendered) checkReferences(o metav1.Object) {
	switch o := o.(type) {
	case *corev1.Service:
		names := r.selected(o.Spec.Selector)
		require.Len(r.t, names, 1, o.Name)
		for _, p := range o.Spec.Ports {
			require.NotZero(r.t, containerPort(r.pods[names[0]].Spec.Containers[0], p.TargetPort.StrVal), "%s: %s", o.Name, p.Name)
		}
	case *appsv1.Deployment:
		require.Equal(r.t, []string{o.Name}, r.selected(o.Spec.Selector.MatchLabels))
		for _, s := range o.Spec.Template.Spec.TopologySpreadConstraints {
			require.Equal(r.t, []string{o.Name}, r.selected(s.LabelSelector.MatchLabels))
		}
	case *autoscalingv2.HorizontalPodAutoscaler:
		require.Nil(r.t, named[*appsv1.Deployment](r, o.Spec.ScaleTargetRef.Name).Spec.Replicas)
		require.Positive(r.t, *o.Spec.MinReplicas)
	case *scaledObject:
		require.Nil(r.t, named[*appsv1.Deployment](r, o.Spec.ScaleTargetRef.Name).Spec.Replicas)
		r.checkQueries(o)
	case *policyv1.PodDisruptionBudget:
		require.Len(r.t, r.selected(o.Spec.Selector.MatchLabels), 1, o.Name)
	case *networkingv1.Ingress:
		for _, rule := range o.Spec.Rules {
			b := rule.HTTP.Paths[0].Backend.Service
			require.Equal(r.t, b.Port.Number, named[*corev1.Service](r, b.Name).Spec.Ports[0].Port)
		}
	case *gatewayv1.HTTPRoute:
		b := o.Spec.Rules[0].BackendRefs[0]
		require.Equal(r.t, *b.Port, named[*corev1.Service](r, string(b.Name)).Spec.Ports[0].Port)
	case *monitoringv1.PodMonitor:
		r.checkMonitor(o)
	case *networkingv1.NetworkPolicy:
		require.NotEmpty(r.t, r.selected(o.Spec.PodSelector.MatchLabels), o.Name)
	}
}

// checkMonitor requires that Prometheus scrapes every Deployment, with the job name that the alerts look for.
func (r *rendered) checkMonitor(o *monitoringv1.PodMonitor) {
	names, endpoint := r.selected(o.Spec.Selector.MatchLabels), o.Spec.PodMetricsEndpoints[0]
	for name, pod := range r.pods {
		require.Contains(r.t, names, name)
		if containerPort(pod.Spec.Containers[0], "ops") > 0 {
			require.NotZero(r.t, containerPort(pod.Spec.Containers[0], *endpoint.Port), name)
		}
	}
	require.Equal(r.t, "job", endpoint.RelabelConfigs[0].TargetLabel)
	require.Regexp(r.t, "^hongbao", *endpoint.RelabelConfigs[0].Replacement)
}

func containerPort(c corev1.Container, name string) int32 {
	for _, p := range c.Ports {
		if p.Name == name {
			return p.ContainerPort
		}
	}
	return 0
}

// checkPod requires a pod with the least privileges: no root, no capabilities, a read-only file system.
func (r *rendered) checkPod(name string, pod *corev1.PodTemplateSpec) {
	s := pod.Spec.SecurityContext
	require.True(r.t, *s.RunAsNonRoot, name)
	require.True(r.t, s.RunAsUser == nil || *s.RunAsUser == 65532)
	require.Equal(r.t, corev1.SeccompProfileTypeRuntimeDefault, s.SeccompProfile.Type)
	require.False(r.t, *pod.Spec.AutomountServiceAccountToken)
	c := pod.Spec.Containers[0]
	require.True(r.t, *c.SecurityContext.ReadOnlyRootFilesystem)
	require.False(r.t, *c.SecurityContext.AllowPrivilegeEscalation)
	require.Equal(r.t, []corev1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	require.False(r.t, c.Resources.Limits.Memory().IsZero())
	r.checkGoMemory(&c)
	require.False(r.t, c.Resources.Requests.Cpu().IsZero())
	volumes := map[string]bool{}
	for _, v := range pod.Spec.Volumes {
		volumes[v.Name] = true
		if v.ConfigMap != nil {
			named[*corev1.ConfigMap](r, v.ConfigMap.Name)
		}
		if v.Secret != nil {
			require.Equal(r.t, int32(0o440), *v.Secret.DefaultMode)
		}
	}
	require.Len(r.t, c.VolumeMounts, len(volumes))
	variables := map[string]bool{}
	for _, e := range c.Env {
		require.False(r.t, variables[e.Name], "%s has %s twice", name, e.Name)
		variables[e.Name] = true
	}
	require.True(r.t, variables["HONGBAO_CONFIG"], "%s: commands in the pod need the configuration", name)
	for _, m := range c.VolumeMounts {
		require.True(r.t, volumes[m.Name] && m.ReadOnly, "%s mounts %s", name, m.Name)
	}
	for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		require.True(r.t, p == nil || containerPort(c, p.HTTPGet.Port.StrVal) != 0, name)
	}
}

// checkGoMemory requires a GOMEMLIMIT of four fifths of the memory limit. The rest is for memory that Go's garbage
// collector does not count.
func (r *rendered) checkGoMemory(c *corev1.Container) {
	for _, e := range c.Env {
		if e.Name == "GOMEMLIMIT" {
			var mib int64
			_, err := fmt.Sscanf(e.Value, "%dMiB", &mib)
			require.NoError(r.t, err, e.Value)
			require.InEpsilon(r.t, 0.8*float64(c.Resources.Limits.Memory().Value()), float64(mib<<20), 0.01, c.Name)
			return
		}
	}
	require.Fail(r.t, "no GOMEMLIMIT", c.Name)
}
