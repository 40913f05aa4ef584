{{- define "konkordia.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "konkordia.labels" -}}
app.kubernetes.io/name: konkordia
app.kubernetes.io/instance: {{ include "konkordia.name" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "konkordia.selector" -}}
app.kubernetes.io/name: konkordia
app.kubernetes.io/instance: {{ include "konkordia.name" . }}
app.kubernetes.io/component: receiver
{{- end }}

{{/* What the schema cannot say. */}}
{{- define "konkordia.check" -}}
{{- if has .Release.Namespace (list "default" "kube-system" "kube-public" "kube-node-lease") }}
{{- fail (printf "every detector has a namespace of its own, and not '%s': helm install %s ... --namespace %s --create-namespace" .Release.Namespace .Release.Name .Release.Name) }}
{{- end }}
{{- if and .Values.detector.config .Values.detector.address }}
{{- fail "detector.address and detector.config are both given: detector.config is the whole configuration, so leave detector.address out" }}
{{- end }}
{{- if not (or .Values.detector.config .Values.detector.address) }}
{{- fail "which detector? give detector.address (a detector that sends whole images) or detector.config (the whole configuration)" }}
{{- end }}
{{- if and .Values.detector.address (not .Values.output.directory) }}
{{- fail "output.directory is not given: name a folder below one of the mounts, for example /data/eiger" }}
{{- end }}
{{- $names := dict }}
{{- range .Values.mounts }}
{{- if hasKey $names .name }}{{ fail (printf "two mounts have the name '%s'" .name) }}{{ end }}
{{- $_ := set $names .name true }}
{{- end }}
{{- if .Values.output.directory }}
{{- $directory := printf "%s/" (trimSuffix "/" .Values.output.directory) }}
{{- $found := false }}
{{- range .Values.mounts }}
{{- if and (hasPrefix (printf "%s/" (trimSuffix "/" .path)) $directory) (not .readOnly) }}{{ $found = true }}{{ end }}
{{- end }}
{{- if not $found }}
{{- fail (printf "output.directory %s is below none of the writable mounts, so nothing could be written there: add it to mounts" .Values.output.directory) }}
{{- end }}
{{- end }}
{{- if and .Values.pipelineControl.enabled (not .Values.pipelines) }}
{{- fail "pipelineControl.enabled is true, but there are no pipelines" }}
{{- end }}
{{- end }}

{{- define "konkordia.config" -}}
{{- if .Values.detector.config -}}
{{ .Values.detector.config }}
{{- else -}}
[detector]
type = "stream"

[source]
protocol = {{ .Values.detector.protocol | toJson }}
upstreams = {{ .Values.detector.address | toJson }}
accept = {{ .Values.detector.accept | toJson }}

[output]
directory = {{ .Values.output.directory | toJson }}
prefix = {{ .Values.output.prefix | toJson }}
{{- if .Values.workers }}

[processing]
workers = {{ int .Values.workers }}
{{- end }}

[service]
name = {{ include "konkordia.name" . | toJson }}
tokens = "/etc/konkordia/secret/tokens"
{{- range .Values.streams }}

[[stream]]
name = {{ .name | toJson }}
address = "tcp://*:{{ int .port }}"
protocol = {{ .protocol | default "stins" | toJson }}
socket = {{ .socket | default "push" | toJson }}
service = {{ .service | default "reliable-skip" | toJson }}
{{- end }}
{{- end }}
{{- if .Values.detector.extra }}

{{ .Values.detector.extra }}
{{- end }}
{{- end }}

{{- define "konkordia.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "konkordia.podSecurityContext" -}}
runAsUser: {{ int64 .Values.user.uid }}
runAsGroup: {{ int64 .Values.user.gid }}
runAsNonRoot: true
{{- with .Values.user.groups }}
supplementalGroups: {{ toJson . }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "konkordia.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
- name: secret
  secret: {secretName: {{ .Values.tokensSecret }}, defaultMode: 0444}
{{- range .Values.mounts }}
- name: mount-{{ .name }}
  {{- if .claim }}
  persistentVolumeClaim: {claimName: {{ .claim }}}
  {{- else if .hostPath }}
  hostPath: {path: {{ .hostPath | quote }}, type: Directory}
  {{- else if .configMap }}
  configMap: {name: {{ .configMap }}}
  {{- else }}
  secret: {secretName: {{ .secret }}}
  {{- end }}
{{- end }}
{{- end }}

{{- define "konkordia.volumeMounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: secret, mountPath: /etc/konkordia/secret, readOnly: true}
- {name: config, mountPath: /etc/konkordia/config, readOnly: true}
{{- range .Values.mounts }}
- {name: mount-{{ .name }}, mountPath: {{ .path | quote }}, readOnly: {{ .readOnly | default false }}}
{{- end }}
{{- end }}

{{/* Where every pod of a detector may connect to: pods of the namespace, names, and what the values allow. */}}
{{- define "konkordia.egress" -}}
- to: [{podSelector: {}}]
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
{{- with .Values.networkPolicy.to }}
- to:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end }}
