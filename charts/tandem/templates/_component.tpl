{{/*
The one shape of an operator. `tandem.component` renders everything that both operators have alike; only what an
operator may do differs, and stands in its own rbac.yaml. All templates take the dict described in _names.tpl.
*/}}

{{- define "tandem.component" -}}
{{- include "tandem.component.validate" . -}}
{{ include "tandem.component.serviceAccount" . }}
---
{{ include "tandem.component.leaseRole" . }}
---
{{ include "tandem.component.deployment" . }}
{{- if gt (int .values.replicas) 1 }}
---
{{ include "tandem.component.podDisruptionBudget" . }}
{{- end }}
{{- if .root.Values.metrics.service.enabled }}
---
{{ include "tandem.component.service" . }}
{{- end }}
{{- if .root.Values.metrics.serviceMonitor.enabled }}
---
{{ include "tandem.component.serviceMonitor" . }}
{{- end }}
{{- if .root.Values.networkPolicy.enabled }}
---
{{ include "tandem.component.networkPolicy" . }}
{{- end }}
{{- end -}}

{{/* What a JSON schema cannot say, because it compares two values. */}}
{{- define "tandem.component.validate" -}}
{{- $block := .name | camelcase | untitle -}}
{{- with .values.leaderElection -}}
{{- $duration := int .leaseDurationSeconds -}}
{{- $deadline := int .renewDeadlineSeconds -}}
{{- $period := int .retryPeriodSeconds -}}
{{- if not (and (gt $duration $deadline) (gt $deadline $period)) -}}
{{- $order := "leaseDurationSeconds (%d) must be above renewDeadlineSeconds (%d), and that above retryPeriodSeconds (%d)" -}}
{{- fail (printf (printf "%s.leaderElection: %s" $block $order) $duration $deadline $period) -}}
{{- end -}}
{{- end -}}
{{- with .root.Values.metrics -}}
{{- if and .serviceMonitor.enabled (not .service.enabled) -}}
{{- fail "metrics.serviceMonitor.enabled needs metrics.service.enabled: a ServiceMonitor finds pods through their Service" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tandem.component.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "tandem.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "tandem.component.labels" . | nindent 4 }}
# Only the operator's own pod asks for the token; another pod under this account does not get it by default.
automountServiceAccountToken: false
{{- end -}}

{{- define "tandem.component.leaseRole" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ include "tandem.component.fullname" . }}-lease
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "tandem.component.labels" . | nindent 4 }}
rules:
  # Create the Lease of the leader election. RBAC cannot limit create by name: the name is not known to it yet.
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  # Hold, renew and release that one Lease.
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{{ include "tandem.component.fullname" . }}]
    verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ include "tandem.component.fullname" . }}-lease
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "tandem.component.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "tandem.component.fullname" . }}-lease
subjects:
  {{- include "tandem.component.subject" . | nindent 2 }}
{{- end -}}

{{- define "tandem.component.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "tandem.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "tandem.component.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  # A replica that is not ready protects nothing, and must not hold up the drain of its node.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "tandem.component.selectorLabels" . | nindent 6 }}
{{- end -}}

{{- define "tandem.component.service" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "tandem.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "tandem.component.labels" . | nindent 4 }}
  {{- with .root.Values.metrics.service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: ClusterIP
  # An operator that is not ready is the one whose metrics are needed most.
  publishNotReadyAddresses: true
  ports:
    - name: metrics
      port: {{ .root.Values.metrics.service.port }}
      targetPort: admin
      protocol: TCP
  selector:
    {{- include "tandem.component.selectorLabels" . | nindent 4 }}
{{- end -}}

{{- define "tandem.component.serviceMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ include "tandem.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- $extra := .root.Values.metrics.serviceMonitor.labels | default dict }}
    {{- merge (include "tandem.component.labels" . | fromYaml) $extra | toYaml | nindent 4 }}
spec:
  endpoints:
    - port: metrics
      path: /metrics
      interval: {{ .root.Values.metrics.serviceMonitor.interval }}
      scrapeTimeout: {{ .root.Values.metrics.serviceMonitor.scrapeTimeout }}
  selector:
    matchLabels:
      {{- include "tandem.component.selectorLabels" . | nindent 6 }}
{{- end -}}

{{- define "tandem.component.networkPolicy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "tandem.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "tandem.component.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "tandem.component.selectorLabels" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    # Scrapes; the kubelet's probes come from the node, which a policy does not keep out.
    - ports:
        - port: admin
          protocol: TCP
      {{- with .root.Values.networkPolicy.ingressFrom }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
  egress:
    # Names.
    - ports:
        - port: 53
          protocol: UDP
        - port: 53
          protocol: TCP
    # The API server: often outside the cluster's pods, so only its port can be named.
    - ports:
        {{- range .root.Values.networkPolicy.apiServerPorts }}
        - port: {{ . }}
          protocol: TCP
        {{- end }}
    {{- with .root.Values.networkPolicy.extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
