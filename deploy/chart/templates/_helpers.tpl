{{- define "hongbao.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "hongbao.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "hongbao.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "hongbao.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* The labels by which a part's pods are selected. Takes (dict "root" $ "part" "serve"). */ -}}
{{- define "hongbao.selector" -}}
app.kubernetes.io/name: {{ include "hongbao.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .part }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- define "hongbao.labels" -}}
{{ include "hongbao.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end -}}

{{- /* Takes root and image. */ -}}
{{- define "hongbao.image" -}}
{{- with .image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.root.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "hongbao.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}{{ .Values.serviceAccount.name }}
{{- else if .Values.serviceAccount.create -}}{{ include "hongbao.fullname" . }}
{{- else -}}default
{{- end -}}
{{- end -}}

{{- /* hongbao.yaml. */ -}}
{{- define "hongbao.config" -}}
{{- range tuple "serve.listen" "serve.ops_listen" "serve.drain_delay" "serve.drain_timeout" "serve.keys" "serve.tls_cert" "serve.tls_key" "control.listen" "control.ops_listen" "control.drain_timeout" "control.tls_cert" "control.tls_key" "work.ops_listen" "consumer.drain_timeout" "log.format" -}}
{{- $path := splitList "." . -}}
{{- $section := default dict (get $.Values.config (first $path)) -}}
{{- if hasKey $section (last $path) -}}
{{- fail (printf "config.%s: the chart sets it; see its values" .) -}}
{{- end -}}
{{- end -}}
{{- toYaml .Values.config -}}
{{- end -}}

{{- /* deployment.id, which is the label deployment of all metrics. */ -}}
{{- define "hongbao.deployment" -}}
{{- $section := default dict .Values.config.deployment -}}
{{- default "hongbao" (default $section.id .Values.env.HONGBAO_DEPLOYMENT_ID) -}}
{{- end -}}

{{- /* The sinks that the configuration has. */ -}}
{{- define "hongbao.sinks" -}}
{{- $deployment := default dict .Values.config.deployment -}}
{{- toJson (default (list "balance" "kafka") $deployment.sinks) -}}
{{- end -}}

{{- define "hongbao.podLabels" -}}
{{ include "hongbao.labels" . }}
{{- with .root.Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "hongbao.podAnnotations" -}}
checksum/config: {{ include "hongbao.config" . | sha256sum }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Takes root and part. */ -}}
{{- define "hongbao.spread" -}}
{{- range .root.Values.topologySpread }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "hongbao.selector" $ | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end -}}

{{- /* For Prometheus: each pod of a part has an address of its own here. */ -}}
{{- define "hongbao.ops" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "hongbao.fullname" .root }}-{{ .part }}-ops
  labels: {{- include "hongbao.labels" . | nindent 4 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{- include "hongbao.selector" . | nindent 4 }}
  ports:
    - {name: ops, port: 8082, targetPort: ops}
{{- end -}}
