{{- define "rollrace.labels" -}}
app.kubernetes.io/name: rollrace
{{- end -}}

{{- define "rollrace.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
