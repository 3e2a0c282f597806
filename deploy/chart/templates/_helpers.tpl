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

{{- define "hongbao.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
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
{{- range tuple "serve.listen" "serve.ops_listen" "serve.drain_delay" "serve.drain_timeout" "serve.keys" "serve.tls_cert" "serve.tls_key" "serve.control_listen" "serve.control_tls_cert" "serve.control_tls_key" "work.ops_listen" "consumer.drain_timeout" "log.format" -}}
{{- $path := splitList "." . -}}
{{- $section := default dict (get $.Values.config (first $path)) -}}
{{- if hasKey $section (last $path) -}}
{{- fail (printf "config.%s: the chart sets it; see its values" .) -}}
{{- end -}}
{{- end -}}
{{- toYaml .Values.config -}}
{{- end -}}

{{- /* The sinks that the configuration has. */ -}}
{{- define "hongbao.sinks" -}}
{{- $deployment := default dict .Values.config.deployment -}}
{{- toJson (default (list "balance" "kafka") $deployment.sinks) -}}
{{- end -}}

{{- /* What every pod has. Takes root, part, values (the part's) and args. */ -}}
{{- define "hongbao.pod" -}}
{{- $ := .root -}}
{{- $v := $.Values -}}
{{- with $v.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if ne .part "init" }}
serviceAccountName: {{ include "hongbao.serviceAccount" $ }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $v.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $v.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: config
    configMap: {name: {{ include "hongbao.fullname" $ }}{{ if eq .part "init" }}-init{{ end }}}
{{- range $name, $file := .files }}
  - name: {{ $name }}
    secret: {secretName: {{ $file.secret }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- /* A value as a variable's text. Helm reads each number as a float64, and a large one would become 5e+06. */ -}}
{{- define "hongbao.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end -}}

{{- /* Four fifths of a memory limit in Mi or Gi, for Go's collector; empty for another unit. */ -}}
{{- define "hongbao.goMemory" -}}
{{- $n := regexFind "^[0-9]+" . | int64 }}
{{- if regexMatch "^[0-9]+Gi$" . }}{{ div (mul $n 1024 4) 5 }}MiB
{{- else if regexMatch "^[0-9]+Mi$" . }}{{ div (mul $n 4) 5 }}MiB
{{- end }}
{{- end -}}

{{- /* What every container has. Takes root, part, values, args and files. */ -}}
{{- define "hongbao.container" -}}
{{- $ := .root -}}
name: {{ .part }}
image: {{ include "hongbao.image" $ | quote }}
imagePullPolicy: {{ $.Values.image.pullPolicy }}
args: {{- toYaml (concat .args (list "--config=/etc/hongbao/config/hongbao.yaml" "--log.format=json")) | nindent 2 }}
{{- $env := dict }}
{{- with include "hongbao.goMemory" (toString .values.resources.limits.memory) }}{{ $_ := set $env "GOMEMLIMIT" . }}{{ end }}
{{- range $name, $value := $.Values.env }}{{ $_ := set $env $name $value }}{{ end }}
{{- range $name, $value := .values.env }}{{ $_ := set $env $name $value }}{{ end }}
{{- $secrets := merge (deepCopy .values.secrets) $.Values.secrets }}
{{- if or $env $secrets }}
env:
{{- range $name, $value := $env }}
  - {name: {{ $name }}, value: {{ include "hongbao.text" $value | quote }}}
{{- end }}
{{- range $name, $from := $secrets }}
  - name: {{ $name }}
    valueFrom: {secretKeyRef: {name: {{ $from.name }}, key: {{ $from.key }}}}
{{- end }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{- toYaml .values.resources | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/hongbao/config, readOnly: true}
{{- range $name, $file := .files }}
  - {name: {{ $name }}, mountPath: /etc/hongbao/{{ $name }}, readOnly: true}
{{- end }}
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

{{- /* Probes of the ops port, the same for each process that goes on. */ -}}
{{- define "hongbao.probes" -}}
startupProbe: {httpGet: {path: /livez, port: ops}, periodSeconds: 1, failureThreshold: 60}
livenessProbe: {httpGet: {path: /livez, port: ops}, periodSeconds: 10, timeoutSeconds: 3, failureThreshold: 3}
readinessProbe: {httpGet: {path: /readyz, port: ops}, periodSeconds: 2, timeoutSeconds: 3, failureThreshold: 3}
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
