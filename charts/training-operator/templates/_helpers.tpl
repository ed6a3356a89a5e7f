{{/* Labels of every object: {{ include "training-operator.labels" . | nindent 4 }} */}}
{{- define "training-operator.labels" -}}
{{ include "training-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Labels that select the operator's pods; no version is among them, since a Deployment's selector never changes:
     {{ include "training-operator.selector" . | nindent 6 }} */}}
{{- define "training-operator.selector" -}}
app.kubernetes.io/name: training-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* An image's tag, which has to be a version: {{ include "training-operator.tag" (list "image.tag" .Values.image.tag) }} */}}
{{- define "training-operator.tag" -}}
{{- if eq (index . 1) "latest" -}}
{{- fail (printf "%s: got latest, which changes without notice, expected a version. Fix: leave %s out to get the tested version" (index . 0) (index . 0)) -}}
{{- end -}}
{{ index . 1 }}
{{- end }}

{{/* The operator's image, by digest if it has one: {{ include "training-operator.image" . }} */}}
{{- define "training-operator.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ include "training-operator.tag" (list "image.tag" .tag) }}{{ end }}
{{- end }}
{{- end }}

{{/* Plural names of the kinds with a suffix: {{ include "training-operator.resources" (list . "/status") | nindent 6 }} */}}
{{- define "training-operator.resources" -}}
{{- $suffix := index . 1 -}}
{{- range (index . 0).Values.kinds }}
- {{ . }}s{{ $suffix }}
{{- end }}
{{- end }}
