{{- /* What serve needs to start, and to live with its limits. Takes what hongbao.pod takes. */ -}}
{{- define "hongbao.checkServe" -}}
{{- $v := .values -}}
{{- $config := default dict .root.Values.config.serve -}}
{{- if and $v.keys.url $v.keys.secret }}{{ fail "serve.keys: name a url or a secret, not both" }}{{ end -}}
{{- if not (or $v.keys.url $v.keys.secret) -}}
{{- if or $config.issuer $config.audience -}}
{{- fail "serve.keys: config.serve.issuer and config.serve.audience are for users' tokens, which need keys: name a url or a secret, or remove the two" -}}
{{- end -}}
{{- if not (include "hongbao.readsLedger" .) -}}
{{- fail "serve: no one could grab: name serve.keys.url or serve.keys.secret for users' tokens, or give serve the variable HONGBAO_LEDGER_DSN for gateways with API keys" -}}
{{- end -}}
{{- end -}}
{{- with $v.autoscaling -}}
{{- if .enabled -}}
{{- if gt (int .minReplicas) (int .maxReplicas) }}{{ fail "serve.autoscaling: minReplicas is above maxReplicas" }}{{ end -}}
{{- if not (default dict $v.resources.requests).cpu }}{{ fail "serve.autoscaling: the target is a share of serve.resources.requests.cpu: set it" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- include "hongbao.checkConnections" . -}}
{{- end -}}

{{- /* Connections with TLS must fit into GOMEMLIMIT; docs/sizing.md has the figures: 38 KB each, 260 MB for the rates of
a million users, 50 MB for the program. */ -}}
{{- define "hongbao.checkConnections" -}}
{{- $open := (index (include "hongbao.env" . | fromJson) "HONGBAO_SERVE_CONNECTIONS" | default dict).value -}}
{{- $open = default 20000 (default (default dict .root.Values.config.serve).connections $open) | float64 | int64 -}}
{{- $need := add (div (mul $open 38000) 1000000) 310 -}}
{{- with include "hongbao.goMiB" . -}}
{{- $has := div (mul (int64 .) 1048576) 1000000 -}}
{{- if and $.values.tls.secret (gt $need $has) -}}
{{- fail (printf "serve.resources.limits.memory: %v is too little for serve.connections %d: with TLS they need %d MB (38 KB each, and 310 MB), and Go may use four fifths of the limit, %d MB: raise the limit to %dMi, or lower config.serve.connections" $.values.resources.limits.memory $open $need $has (add 1 (div (mul $need 1250000) 1048576))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Without workers, only control exports how much work waits. Takes the root. */ -}}
{{- define "hongbao.checkZero" -}}
{{- if not .Values.control.enabled -}}
{{- fail "work.autoscaling: with minReplicas 0 and no control, no process reports that grants wait: set minReplicas to 1, or enable control" -}}
{{- end -}}
{{- end -}}

{{- /* What earlier values said of serve, whose pods had the administration. Takes the root. */ -}}
{{- define "hongbao.checkMoved" -}}
{{- if hasKey .Values.serve "control" -}}
{{- fail "serve.control: administration has pods of its own now: remove serve.control, and set control.enabled, control.service.enabled, control.service.port and control.tls.secret instead; control needs the secrets of the role hongbao_control (control.secrets), and serve no longer does" -}}
{{- end -}}
{{- end -}}
