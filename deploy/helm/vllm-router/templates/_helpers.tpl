{{- define "vllm-router.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 54 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 54 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 54 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "vllm-router.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- /* The Redis of peerSyncRedis, whose pod is no router. */ -}}
{{- define "vllm-router.redisSelector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 57 | trimSuffix "-" | printf "%s-redis" | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "vllm-router.labels" -}}
{{ include "vllm-router.selector" . }}
{{ include "vllm-router.commonLabels" . }}
{{- end }}

{{- define "vllm-router.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "vllm-router.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "vllm-router.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "vllm-router.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- /* Settling, then the grace period, then a margin before the kill. */ -}}
{{- define "vllm-router.terminationGracePeriod" -}}
{{- with .Values.router }}
{{- addf .shutdown_settle_secs .shutdown_grace_period_secs | ceil | int | add $.Values.terminationMarginSecs }}
{{- end }}
{{- end }}

{{- /* "true" where --port speaks TLS. */ -}}
{{- define "vllm-router.tls" -}}
{{- if or .Values.secrets.tls.name .Values.router.tls_cert_path }}true{{ end }}
{{- end }}

{{- define "vllm-router.scheme" -}}
{{ if include "vllm-router.tls" . }}https{{ else }}http{{ end }}
{{- end }}

{{- /* What Kubernetes probes. The kubelet has no client certificate, so it connects only, where one is needed. */ -}}
{{- define "vllm-router.probe" -}}
{{- if or .root.Values.secrets.clientCa.name .root.Values.router.tls_client_ca_file -}}
tcpSocket: {port: http}
{{- else if include "vllm-router.tls" .root -}}
httpGet: {path: {{ .path }}, port: http, scheme: HTTPS}
{{- else -}}
httpGet: {path: {{ .path }}, port: http}
{{- end }}
{{- end }}

{{- /* The Secrets that are mounted below /etc/vllm-router, each by its folder there. */ -}}
{{- define "vllm-router.mountedSecrets" -}}
{{- range $value, $secret := omit .Values.secrets "workerKey" }}
{{- if $secret.name }}
{{ kebabcase $value }}: {{ $secret.name | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The InferencePool of the chart. */ -}}
{{- define "vllm-router.ownPool" -}}
{{- with .Values.epp.inferencePool }}
{{- if .enabled }}{{ default (include "vllm-router.fullname" $) .name }}{{ end }}
{{- end }}
{{- end }}

{{- /* The InferencePool whose pods are discovered; empty: none. */ -}}
{{- define "vllm-router.pool" -}}
{{- with .Values.discovery }}
{{- if .inferencePool }}{{ .inferencePool }}
{{- else if not (or .selector .service .prefillSelector .decodeSelector) }}{{ include "vllm-router.ownPool" $ }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The namespaces in which workers are discovered; none: all. */ -}}
{{- define "vllm-router.namespaces" -}}
{{- $pool := include "vllm-router.pool" . }}
{{- ternary (list .Release.Namespace) .Values.discovery.namespaces (and (ne $pool "") (not .Values.discovery.namespaces)) | toJson }}
{{- end }}

{{- define "vllm-router.args" -}}
- --config=/etc/vllm-router/config/router.yaml
{{- with .Values.secrets }}
{{- if .clientKeys.name }}
- --client-api-key-file=/etc/vllm-router/client-keys/{{ .clientKeys.key }}
{{- end }}
{{- if .adminKeys.name }}
- --admin-api-key-file=/etc/vllm-router/admin-keys/{{ .adminKeys.key }}
{{- end }}
{{- if .workerKey.name }}
- --api-key=$(WORKER_API_KEY)
{{- end }}
{{- if .redisPassword.name }}
- --redis-password-file=/etc/vllm-router/redis-password/{{ .redisPassword.key }}
{{- end }}
{{- if .peerSyncPassword.name }}
- --peer-sync-password-file=/etc/vllm-router/peer-sync-password/{{ .peerSyncPassword.key }}
{{- end }}
{{- if .peerSyncSecret.name }}
- --peer-sync-secret-file=/etc/vllm-router/peer-sync-secret/{{ .peerSyncSecret.key }}
{{- end }}
{{- if .tls.name }}
- --tls-cert-path=/etc/vllm-router/tls/tls.crt
- --tls-key-path=/etc/vllm-router/tls/tls.key
{{- end }}
{{- if .clientCa.name }}
- --tls-client-ca-file=/etc/vllm-router/client-ca/{{ .clientCa.key }}
{{- end }}
{{- if .workerCa.name }}
- --worker-ca-file=/etc/vllm-router/worker-ca/{{ .workerCa.key }}
{{- end }}
{{- if .workerTls.name }}
- --worker-cert-path=/etc/vllm-router/worker-tls/tls.crt
- --worker-key-path=/etc/vllm-router/worker-tls/tls.key
{{- end }}
{{- end }}
{{- if and .Values.peerSyncRedis.enabled (not .Values.router.peer_sync) }}
- --peer-sync=redis://{{ include "vllm-router.fullname" . }}-redis:6379
{{- end }}
{{- if and .Values.adminService.enabled (not .Values.router.admin_host) }}
- {{ printf "--admin-host=%s" .Values.router.host | quote }}
{{- end }}
{{- with .Values.discovery }}
{{- if .enabled }}
- --service-discovery
{{- range $name, $value := .selector }}
- {{ printf "--selector=%s=%v" $name $value | quote }}
{{- end }}
{{- range $name, $value := .prefillSelector }}
- {{ printf "--prefill-selector=%s=%v" $name $value | quote }}
{{- end }}
{{- range $name, $value := .decodeSelector }}
- {{ printf "--decode-selector=%s=%v" $name $value | quote }}
{{- end }}
{{- with .service }}
- {{ printf "--service-discovery-service=%s" . | quote }}
{{- end }}
{{- with include "vllm-router.pool" $ }}
- {{ printf "--inference-pool=%s" . | quote }}
{{- end }}
{{- range include "vllm-router.namespaces" $ | fromJsonArray }}
- {{ printf "--service-discovery-namespace=%s" . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.epp }}
{{- if .enabled }}
- --epp-port={{ .port }}
- --epp-health-port={{ .healthPort }}
{{- if .tls }}
- --epp-tls
{{- end }}
{{- if .only }}
- --epp-only
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Values that the schema admits and that would not do what they say. */ -}}
{{- define "vllm-router.check" -}}
{{- with .Values.router }}
{{- if .api_key }}
{{- fail "router.api_key is set and would be in a ConfigMap, which is no secret; put the key into a Secret and name it in secrets.workerKey.name" }}
{{- end }}
{{- range $name, $url := dict "redis_url" .redis_url "peer_sync" .peer_sync "response_cache.redis.url" (dig "redis" "url" "" (ternary .response_cache dict (kindIs "map" .response_cache))) "kv_cache_index.redis.url" (dig "redis" "url" "" (default dict .kv_cache_index)) }}
{{- if regexMatch "://[^@]*:.*@|[?]" (default "" $url) }}
{{- fail (printf "router.%s has a password and would be in a ConfigMap, which is no secret; put the password into a Secret and name it in secrets.%s.name" $name (ternary "peerSyncPassword" "redisPassword" (eq $name "peer_sync"))) }}
{{- end }}
{{- end }}
{{- if and $.Values.adminService.enabled (not .admin_port) }}
{{- fail "adminService.enabled is true and router.admin_port is not set, so there is no admin port to open; set router.admin_port" }}
{{- end }}
{{- end }}
{{- if .Values.router.service_discovery }}
{{- fail "router.service_discovery is set, and the pod could not read the API; set discovery.enabled instead" }}
{{- end }}
{{- if .Values.router.inference_pool }}
{{- fail "router.inference_pool is set, and the pod could not read the API; set discovery.inferencePool instead" }}
{{- end }}
{{- if .Values.router.epp_port }}
{{- fail "router.epp_port is set, and no Service has that port; set epp.enabled and epp.port instead" }}
{{- end }}
{{- with .Values.epp }}
{{- if and .enabled .tls (not (include "vllm-router.tls" $)) }}
{{- fail "epp.tls is true and there is no certificate; set secrets.tls.name, too" }}
{{- end }}
{{- if and .inferencePool.enabled (not .enabled) }}
{{- fail "epp.inferencePool.enabled is true and epp.enabled is not, so the pool would name a port that nothing serves; set epp.enabled to true" }}
{{- end }}
{{- if and .inferencePool.enabled (or (not .inferencePool.selector) (not .inferencePool.targetPorts)) }}
{{- fail "epp.inferencePool.enabled is true and epp.inferencePool.selector or targetPorts is empty; name the labels of the workers' pods, such as {app: vllm}, and their ports" }}
{{- end }}
{{- end }}
{{- with .Values.discovery }}
{{- $stages := or .prefillSelector .decodeSelector }}
{{- if and .enabled (not .selector) (not .service) (not $stages) (not (include "vllm-router.pool" $)) }}
{{- fail "discovery.enabled is true and neither discovery.selector nor discovery.service says which pods are workers; set one of them, discovery.inferencePool, or discovery.prefillSelector and discovery.decodeSelector" }}
{{- end }}
{{- if and .enabled .inferencePool (or .selector .service $stages) }}
{{- fail "discovery.inferencePool is set beside another of discovery's selectors or discovery.service; the pool says the labels, so keep it alone" }}
{{- end }}
{{- if and .enabled (include "vllm-router.pool" $) (gt (len .namespaces) 1) }}
{{- fail "discovery.namespaces has several names, and an InferencePool and its pods are in one; keep that one" }}
{{- end }}
{{- if and .enabled $stages (or .selector .service) }}
{{- fail "discovery.prefillSelector or discovery.decodeSelector is set beside discovery.selector or discovery.service, which tell no stages; keep those of the stages" }}
{{- end }}
{{- if and .enabled $stages (not $.Values.router.vllm_pd_disaggregation) }}
{{- fail "discovery.prefillSelector or discovery.decodeSelector is set and router.vllm_pd_disaggregation is not, so pods have no stages; set router.vllm_pd_disaggregation to true" }}
{{- end }}
{{- if and .enabled .selector .service }}
{{- fail "discovery.selector and discovery.service are both set; keep one of them" }}
{{- end }}
{{- end }}
{{- with .Values }}
{{- if and .networkPolicy.enabled .adminService.enabled (not .networkPolicy.adminFrom) (not .secrets.adminKeys.name) }}
{{- fail "adminService.enabled is true, and neither networkPolicy.adminFrom nor secrets.adminKeys.name says who may change the fleet; set one of them" }}
{{- end }}
{{- end }}
{{- if and .Values.secrets.clientCa.name (not (include "vllm-router.tls" .)) }}
{{- fail "secrets.clientCa.name is set and clients connect without TLS; set secrets.tls.name, too" }}
{{- end }}
{{- end }}
