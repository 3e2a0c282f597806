{{- /* The autoscaler of a sink's workers. Takes root, part, sink and auto. control and all workers export the same
values, so the queries take the maximum for each shard, and never the sum of the processes. Without any value, one worker
is started. One worker runs while a shard is frozen, too, because only workers open shards; and while the ledger has work
for workers: added packets that are not in Redis, credits in doubt. With no worker, only control exports these values. */ -}}
{{- define "hongbao.autoscaling" -}}
{{- $a := .auto -}}
{{- if gt (int $a.minReplicas) (int $a.maxReplicas) }}{{ fail (printf "work.autoscaling of %s: minReplicas is above maxReplicas" .sink) }}{{ end }}
{{- if eq $a.kind "hpa" }}
{{- if lt (int $a.minReplicas) 1 }}{{ fail "work.autoscaling: an HPA keeps at least one worker; set minReplicas to 1 or more" }}{{ end }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "hongbao.fullname" .root }}-{{ .part }}
  labels: {{- include "hongbao.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ include "hongbao.fullname" .root }}-{{ .part }}}
  minReplicas: {{ $a.minReplicas }}
  maxReplicas: {{ $a.maxReplicas }}
  metrics:
    - type: External
      external:
        metric: {name: {{ $a.metric }}, selector: {matchLabels: {deployment: {{ include "hongbao.deployment" .root | quote }}, sink: {{ .sink }}}}}
        target: {type: AverageValue, averageValue: {{ $a.grantsPerWorker | int | quote }}}
  behavior:
    scaleDown: {stabilizationWindowSeconds: 300}
{{- end }}
{{- if eq $a.kind "keda" }}
{{- if not $a.prometheus }}{{ fail "work.autoscaling: keda wants the address of prometheus" }}{{ end }}
{{- if eq (int $a.minReplicas) 0 }}{{ include "hongbao.checkZero" .root }}{{ end }}
{{- $all := printf "deployment=%q%s" (include "hongbao.deployment" .root) (ternary "" (printf ",%s" $a.matchers) (eq $a.matchers "")) }}
{{- $of := printf "{sink=%q,%s}" .sink $all }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ include "hongbao.fullname" .root }}-{{ .part }}
  labels: {{- include "hongbao.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {name: {{ include "hongbao.fullname" .root }}-{{ .part }}}
  minReplicaCount: {{ $a.minReplicas }}
  maxReplicaCount: {{ $a.maxReplicas }}
  pollingInterval: 15
  cooldownPeriod: 300
  fallback: {failureThreshold: 3, replicas: {{ max 1 (int $a.minReplicas) }}}
  triggers:
    - type: prometheus
      name: lag
      metadata:
        serverAddress: {{ $a.prometheus | quote }}
        query: {{ printf "sum(max by (shard) (hongbao_sink_lag_grants%s)) or vector(%d)" $of (int $a.grantsPerWorker) | quote }}
        threshold: {{ $a.grantsPerWorker | int | quote }}
        ignoreNullValues: "false"
    - type: prometheus
      name: unfinished
      metadata:
        serverAddress: {{ $a.prometheus | quote }}
        query: {{ printf "clamp_max(ceil(max(hongbao_sink_oldest_seconds%s) + max(hongbao_sink_pending_entries%s) + max(hongbao_sink_parked_entries%s)), 1) or vector(1)" $of $of $of | quote }}
        threshold: "1"
        ignoreNullValues: "false"
    - type: prometheus
      name: frozen
      metadata:
        serverAddress: {{ $a.prometheus | quote }}
        query: {{ printf "max(hongbao_shard_open{%s} == bool 0) or vector(1)" $all | quote }}
        threshold: "1"
        ignoreNullValues: "false"
{{- if or (eq .sink "balance") (not (has "balance" (include "hongbao.sinks" .root | fromJsonArray))) }}
    - type: prometheus
      name: ledger
      metadata:
        serverAddress: {{ $a.prometheus | quote }}
        query: {{ printf "clamp_max(sum(max by (kind) (hongbao_ledger_unfinished{%s})), 1) or vector(0)" $all | quote }}
        threshold: "1"
        ignoreNullValues: "false"
{{- end }}
{{- end }}
{{- end -}}
