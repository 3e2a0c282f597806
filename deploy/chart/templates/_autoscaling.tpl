{{- /* What scales a sink's workers. Takes root, part, sink and auto. All processes tell the same of the deployment, hence the
maximum of a shard and never the sum of the processes; where nobody tells anything, one worker is started. One works as
long as a shard is frozen, too: only workers open shards. And one works as long as the ledger has something for workers:
packets that were added and are not in Redis, credits in doubt. Only serve tells that, and only if it has the ledger. */ -}}
{{- define "hongbao.autoscaling" -}}
{{- $a := .auto -}}
{{- if gt (int $a.min) (int $a.max) }}{{ fail (printf "work.autoscaling of %s: min is above max" .sink) }}{{ end }}
{{- if eq $a.kind "hpa" }}
{{- if lt (int $a.min) 1 }}{{ fail "work.autoscaling: an HPA keeps at least one worker; set min to 1 or more" }}{{ end }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ include "hongbao.fullname" .root }}-{{ .part }}
  labels: {{- include "hongbao.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ include "hongbao.fullname" .root }}-{{ .part }}}
  minReplicas: {{ $a.min }}
  maxReplicas: {{ $a.max }}
  metrics:
    - type: External
      external:
        metric: {name: {{ $a.metric }}, selector: {matchLabels: {sink: {{ .sink }}}}}
        target: {type: AverageValue, averageValue: {{ $a.grantsPerWorker | int | quote }}}
  behavior:
    scaleDown: {stabilizationWindowSeconds: 300}
{{- end }}
{{- if eq $a.kind "keda" }}
{{- if not $a.prometheus }}{{ fail "work.autoscaling: keda wants the address of prometheus" }}{{ end }}
{{- if and (eq (int $a.min) 0) (not .root.Values.serve.enabled) }}{{ fail "work.autoscaling: with min 0 and no serve nobody tells that grants wait; set min to 1" }}{{ end }}
{{- $of := printf "{sink=%q%s}" .sink (ternary "" (printf ",%s" $a.matchers) (eq $a.matchers "")) }}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ include "hongbao.fullname" .root }}-{{ .part }}
  labels: {{- include "hongbao.labels" . | nindent 4 }}
spec:
  scaleTargetRef: {name: {{ include "hongbao.fullname" .root }}-{{ .part }}}
  minReplicaCount: {{ $a.min }}
  maxReplicaCount: {{ $a.max }}
  pollingInterval: 15
  cooldownPeriod: 300
  fallback: {failureThreshold: 3, replicas: {{ max 1 (int $a.min) }}}
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
        query: {{ printf "max(hongbao_shard_open{%s} == bool 0) or vector(1)" $a.matchers | quote }}
        threshold: "1"
        ignoreNullValues: "false"
{{- if or (eq .sink "balance") (not (has "balance" (include "hongbao.sinks" .root | fromJsonArray))) }}
    - type: prometheus
      name: ledger
      metadata:
        serverAddress: {{ $a.prometheus | quote }}
        query: {{ printf "clamp_max(sum(max by (kind) (hongbao_ledger_unfinished{%s})), 1) or vector(0)" $a.matchers | quote }}
        threshold: "1"
        ignoreNullValues: "false"
{{- end }}
{{- end }}
{{- end -}}
