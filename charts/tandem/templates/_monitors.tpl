{{/* What the Prometheus operator scrapes an operator by: through its Service, or its pods themselves. */}}

{{- define "tandem.component.serviceMonitor" -}}
{{- with .root.Values.metrics.serviceMonitor -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  {{- include "tandem.component.metadata" (dict "component" $ "namespace" $.root.Release.Namespace "labels" .labels "annotations" .annotations) | nindent 2 }}
spec:
  endpoints:
    - port: metrics
      {{- include "tandem.monitorEndpoint" . | nindent 6 }}
  selector:
    matchLabels:
      {{- include "tandem.component.selectorLabels" $ | nindent 6 }}
{{- end -}}
{{- end -}}

{{- define "tandem.component.podMonitor" -}}
{{- with .root.Values.metrics.podMonitor -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  {{- include "tandem.component.metadata" (dict "component" $ "namespace" $.root.Release.Namespace "labels" .labels "annotations" .annotations) | nindent 2 }}
spec:
  podMetricsEndpoints:
    - port: admin
      {{- include "tandem.monitorEndpoint" . | nindent 6 }}
  selector:
    matchLabels:
      {{- include "tandem.component.selectorLabels" $ | nindent 6 }}
{{- end -}}
{{- end -}}

{{/* Takes a monitor's block in values.yaml. */}}
{{- define "tandem.monitorEndpoint" -}}
path: /metrics
interval: {{ .interval }}
scrapeTimeout: {{ .scrapeTimeout }}
{{- if .honorLabels }}
honorLabels: true
{{- end }}
{{- with .relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
