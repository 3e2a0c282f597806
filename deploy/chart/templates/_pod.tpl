{{- /* The specification of a pod, without its termination and its spread. Takes root, part, values (the part's), args,
files and ports (the container's; a pod with ports has probes on the port ops). */ -}}
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
securityContext: {{- toYaml $v.podSecurityContext | nindent 2 }}
volumes:
  - name: config
    configMap: {name: {{ include "hongbao.fullname" $ }}{{ if eq .part "init" }}-init{{ end }}}
{{- range $name, $file := .files }}
  - name: {{ $name }}
    secret: {secretName: {{ $file.secret }}, defaultMode: 0440}
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .values.initContainers }}
initContainers: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - {{- include "hongbao.container" . | nindent 4 }}
{{- with .values.extraContainers }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- end -}}

{{- /* Hongbao's own container. Takes the same as hongbao.pod. */ -}}
{{- define "hongbao.container" -}}
{{- $ := .root -}}
name: {{ .part }}
{{- $image := default $.Values.image .values.image }}
image: {{ include "hongbao.image" (dict "root" $ "image" $image) | quote }}
imagePullPolicy: {{ default $.Values.image.pullPolicy $image.pullPolicy }}
args: {{- toYaml (concat .args (list "--log.format=json") (default list .values.extraArgs)) | nindent 2 }}
env:
{{- range include "hongbao.env" . | fromJson }}
  - {{- toYaml . | nindent 4 }}
{{- end }}
securityContext: {{- toYaml $.Values.securityContext | nindent 2 }}
resources: {{- toYaml .values.resources | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/hongbao/config, readOnly: true}
{{- range $name, $file := .files }}
  - {name: {{ $name }}, mountPath: /etc/hongbao/{{ $name }}, readOnly: true}
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- with .ports }}
ports:
{{- range $name, $port := . }}
  - {name: {{ $name }}, containerPort: {{ $port }}}
{{- end }}
startupProbe: {httpGet: {path: /livez, port: ops}, periodSeconds: 1, failureThreshold: 60}
livenessProbe: {httpGet: {path: /livez, port: ops}, periodSeconds: 10, timeoutSeconds: 3, failureThreshold: 3}
readinessProbe: {httpGet: {path: /readyz, port: ops}, periodSeconds: 2, timeoutSeconds: 3, failureThreshold: 3}
{{- end }}
{{- end -}}

{{- /* The variables of a container, by their names, as JSON. Takes root and values. Later sources win. HONGBAO_CONFIG is a
variable, and not a flag, so that `kubectl exec` runs commands with the same configuration. */ -}}
{{- define "hongbao.env" -}}
{{- $env := dict "HONGBAO_CONFIG" (dict "name" "HONGBAO_CONFIG" "value" "/etc/hongbao/config/hongbao.yaml") -}}
{{- with include "hongbao.goMemory" . }}{{ $_ := set $env "GOMEMLIMIT" (dict "name" "GOMEMLIMIT" "value" .) }}{{ end -}}
{{- range $all := list .root.Values.env .values.env -}}
{{- range $name, $value := $all -}}
{{- $_ := set $env $name (dict "name" $name "value" (include "hongbao.text" $value)) -}}
{{- end -}}
{{- end -}}
{{- range $all := list .root.Values.secrets .values.secrets -}}
{{- range $name, $from := $all -}}
{{- $_ := set $env $name (dict "name" $name "valueFrom" (dict "secretKeyRef" (dict "name" $from.name "key" $from.key))) -}}
{{- end -}}
{{- end -}}
{{- range .values.extraEnv }}{{ $_ := set $env .name . }}{{ end -}}
{{- toJson $env -}}
{{- end -}}

{{- /* "true" if a part has the variable HONGBAO_LEDGER_DSN, or its file. Takes root and values. */ -}}
{{- define "hongbao.readsLedger" -}}
{{- $env := include "hongbao.env" . | fromJson -}}
{{- if or (hasKey $env "HONGBAO_LEDGER_DSN") (hasKey $env "HONGBAO_LEDGER_DSN_FILE") }}true{{ end -}}
{{- end -}}

{{- /* A value as a variable's text. Helm reads each number as a float64, and a large one would become 5e+06. */ -}}
{{- define "hongbao.text" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end -}}

{{- /* Four fifths of the container's memory limit in MiB; empty without a limit. The rest is for memory that Go's
collector does not count. Takes values. */ -}}
{{- define "hongbao.goMiB" -}}
{{- with (default dict .values.resources.limits).memory -}}
{{- $text := include "hongbao.text" . -}}
{{- $units := dict "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- $bytes := mulf (trimSuffix $unit $text) (ternary 1 (get $units $unit) (eq $unit "")) -}}
{{- divf (mulf $bytes 0.8) 1048576 | floor | int64 -}}
{{- end -}}
{{- end -}}

{{- define "hongbao.goMemory" -}}
{{- with include "hongbao.goMiB" . }}{{ . }}MiB{{ end -}}
{{- end -}}
