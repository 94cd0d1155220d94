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

{{/*
What a JSON schema cannot say, because it compares two values or reads a text. What an operator refuses at its start is
refused here, in the operator's own words: a release that installs must not be a crash loop.
*/}}
{{- define "tandem.component.validate" -}}
{{- include "tandem.component.validateLease" . -}}
{{- include "tandem.component.validateArgs" . -}}
{{- include "tandem.validateLogLevel" .root.Values.global.logLevel -}}
{{- with .root.Values -}}
{{- $namespaces := list (.nodepoolOperator.watchNamespace | default "") (.autoscalerOperator.watchNamespace | default "") -}}
{{- if ne (first $namespaces) (last $namespaces) -}}
{{- $why := "must be the same: pools that only one operator sees are planned and never filled, or filled and never planned" -}}
{{- fail (printf "nodepoolOperator.watchNamespace (%q) and autoscalerOperator.watchNamespace (%q) %s" (first $namespaces) (last $namespaces) $why) -}}
{{- end -}}
{{- if and .metrics.serviceMonitor.enabled (not .metrics.service.enabled) -}}
{{- fail "metrics.serviceMonitor.enabled needs metrics.service.enabled: a ServiceMonitor finds pods through their Service" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tandem.component.validateLease" -}}
{{- $at := printf "%s.leaderElection" (.name | camelcase | untitle) -}}
{{- with .values.leaderElection -}}
{{- $duration := int .leaseDurationSeconds -}}
{{- $deadline := int .renewDeadlineSeconds -}}
{{- $period := int .retryPeriodSeconds -}}
{{- if le $duration $deadline -}}
{{- $rule := "the lease duration (%ds) must be longer than the renew deadline (%ds); raise leaseDurationSeconds or lower renewDeadlineSeconds" -}}
{{- fail (printf (printf "%s: %s" $at $rule) $duration $deadline) -}}
{{- end -}}
{{- /* 1.2 is client-go's jitter: below that, the holder would have no second try. */ -}}
{{- if le (mul 5 $deadline) (mul 6 $period) -}}
{{- $rule := "the renew deadline (%ds) must be longer than 1.2 times the retry period (%ds); raise renewDeadlineSeconds or lower retryPeriodSeconds" -}}
{{- fail (printf (printf "%s: %s" $at $rule) $deadline $period) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* An operator takes a flag once. */}}
{{- define "tandem.component.validateArgs" -}}
{{- $own := list -}}
{{- range include "tandem.component.args" . | fromYamlArray -}}
{{- $own = splitList "=" . | first | append $own -}}
{{- end -}}
{{- $at := printf "%s.extraArgs" (.name | camelcase | untitle) -}}
{{- range .values.extraArgs -}}
{{- $flag := splitList "=" . | first -}}
{{- if has $flag $own -}}
{{- fail (printf "%s: %s is given by the chart already; set the value that it comes from" $at $flag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Takes the filter. A word that is no level would be taken for the name of a module, and nothing else be logged. */}}
{{- define "tandem.validateLogLevel" -}}
{{- $filter := . -}}
{{- $wrong := list -}}
{{- if not (regexMatch "[^,\\s]" $filter) -}}
{{- $wrong = list $filter -}}
{{- end -}}
{{- /* Directives about spans hold commas and equals signs of their own. */ -}}
{{- if not (contains "[" $filter) -}}
{{- range splitList "," $filter -}}
{{- $level := trim . | splitList "=" | last -}}
{{- if not (regexMatch "^(?i)(off|error|warn|info|debug|trace|[0-5])?$" $level) -}}
{{- $wrong = append $wrong $level -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $wrong -}}
{{- $levels := "levels are off, error, warn, info, debug and trace, and a module has its own behind an equals sign, as in info,shared_runtime::write=debug" -}}
{{- fail (printf "global.logLevel %q: %q is no level; %s" $filter (first .) $levels) -}}
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
