{{/* Parts that several objects have. */}}

{{- define "grovekeeper.labels" -}}
app.kubernetes.io/name: grovekeeper
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "grovekeeper.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{- define "grovekeeper.pod" -}}
serviceAccountName: {{ .Release.Name }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- with .Values.user }}
  runAsUser: {{ . }}
  runAsGroup: {{ . }}
  fsGroup: {{ . }}
  {{- end }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "grovekeeper.container" -}}
image: {{ include "grovekeeper.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end }}

{{/* The environment of API and workers. */}}
{{- define "grovekeeper.environment" -}}
env:
  - {name: GROVEKEEPER_DATABASE_URL_FILE, value: /run/secrets/database_url}
  - {name: GROVEKEEPER_STORAGE_KEY_FILE, value: /run/secrets/storage_key}
  - {name: GROVEKEEPER_SIGNING_KEY_FILE, value: /run/secrets/signing_key}
  {{- with .Values.objectStore.address }}
  - {name: GROVEKEEPER_STORE, value: {{ quote . }}}
  {{- end }}
  {{- range $name, $value := .Values.settings }}
  - {name: {{ $name }}, value: {{ quote $value }}}
  {{- end }}
{{- with .Values.objectStore.secret }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end }}

{{- define "grovekeeper.home" -}}
{{- if .Values.objectStore.address -}}
{name: home, emptyDir: {sizeLimit: {{ .Values.home.size }}}}
{{- else -}}
{name: home, persistentVolumeClaim: {claimName: {{ .Values.home.existingClaim | default (printf "%s-home" .Release.Name) }}}}
{{- end -}}
{{- end }}

{{- define "grovekeeper.secrets" -}}
name: secrets
secret:
  secretName: {{ .secret }}
  defaultMode: 288  # 0440
  items:
    {{- range .files }}
    - {key: {{ . }}, path: {{ . }}}
    {{- end }}
{{- end }}

{{/* The store of rows and models, if it is not the home. */}}
{{- define "grovekeeper.store" -}}
{{- if .Values.objectStore.address -}}
- to:
    - ipBlock: {cidr: {{ .Values.objectStore.cidr }}}
  ports:
    - {protocol: TCP, port: {{ .Values.objectStore.port }}}
{{- end -}}
{{- end }}
