{{/* The Deployment of an operator: the same for both but for its name, image and values. */}}

{{- define "tandem.component.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "tandem.component.metadata" (dict "component" . "namespace" .root.Release.Namespace "labels" .values.deploymentLabels "annotations" .values.deploymentAnnotations) | nindent 2 }}
spec:
  replicas: {{ .values.replicas }}
  revisionHistoryLimit: {{ .values.revisionHistoryLimit }}
  {{- include "tandem.component.strategy" . | nindent 2 }}
  selector:
    matchLabels:
      {{- include "tandem.component.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      # Labels of the chart win over `podLabels`: the selectors above and below depend on them.
      labels:
        {{- merge (include "tandem.component.labels" . | fromYaml) (.values.podLabels | default dict) (.root.Values.commonLabels | default dict) | toYaml | nindent 8 }}
      annotations:
        {{- merge (.values.podAnnotations | default dict) (dict "kubectl.kubernetes.io/default-container" .name) | toYaml | nindent 8 }}
    spec:
      {{- include "tandem.component.podSpec" . | nindent 6 }}
{{- end -}}

{{/*
`rollingUpdate` is always spelled out: were it left to the API server's default, a later change to Recreate would be
refused because the default stays behind.
*/}}
{{- define "tandem.component.strategy" -}}
{{- if gt (int .values.replicas) 1 -}}
strategy:
  type: RollingUpdate
  rollingUpdate:
    maxSurge: 1
    maxUnavailable: 1
{{- else -}}
# One replica means one at a time: a surge would be a second operator.
strategy:
  type: Recreate
{{- end -}}
{{- end -}}

{{- define "tandem.component.podSpec" -}}
serviceAccountName: {{ include "tandem.component.serviceAccountName" . | quote }}
automountServiceAccountToken: true
# The kubelet would set TANDEM_… variables for Services of this name, and the operators read variables of that prefix.
enableServiceLinks: false
{{- with include "tandem.pullSecrets" .root | trim }}
imagePullSecrets:
  {{- . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .values.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- if include "tandem.component.lacksInit" . }}
shareProcessNamespace: true
{{- end }}
{{- with include "tandem.podNetwork" .values | trim }}
{{ . }}
{{- end }}
# Longer than the 20 s in which running reconciles end; then the Lease is released.
terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
{{- with include "tandem.withoutNulls" .values.podSecurityContext }}
securityContext:
  {{- . | nindent 2 }}
{{- end }}
{{- with .values.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .name }}
    image: {{ include "tandem.component.image" . | quote }}
    imagePullPolicy: {{ .root.Values.global.image.pullPolicy }}
    args:
      {{- include "tandem.component.args" . | nindent 6 }}
      {{- range .values.extraArgs }}
      - {{ . | quote }}
      {{- end }}
    env:
      - name: POD_NAME
        valueFrom:
          fieldRef:
            fieldPath: metadata.name
      - name: POD_NAMESPACE
        valueFrom:
          fieldRef:
            fieldPath: metadata.namespace
      {{- with .values.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with .values.extraEnvFrom }}
    envFrom:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    ports:
      - name: admin
        containerPort: {{ include "tandem.component.adminPort" . }}
        protocol: TCP
    {{- with .values.startupProbe }}
    startupProbe:
      httpGet:
        path: /livez
        port: admin
      {{- toYaml . | nindent 6 }}
    {{- end }}
    livenessProbe:
      httpGet:
        path: /livez
        port: admin
      {{- with .values.livenessProbe }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    readinessProbe:
      httpGet:
        path: /readyz
        port: admin
      {{- with .values.readinessProbe }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with .values.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with include "tandem.withoutNulls" .values.securityContext }}
    securityContext:
      {{- . | nindent 6 }}
    {{- end }}
    {{- with .values.extraVolumeMounts }}
    volumeMounts:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    # An operator that cannot start says why on stderr: show it in `kubectl describe pod`.
    terminationMessagePolicy: FallbackToLogsOnError
  {{- with .values.extraContainers }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .values.extraVolumes }}
volumes:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $affinity := deepCopy (.values.affinity | default dict) }}
{{- if not $affinity.podAntiAffinity }}
{{- $selector := dict "matchLabels" (include "tandem.component.selectorLabels" . | fromYaml) }}
{{- $preferred := list }}
{{- range $key, $weight := dict "kubernetes.io/hostname" 100 "topology.kubernetes.io/zone" 50 }}
{{- $preferred = append $preferred (dict "weight" $weight "podAffinityTerm" (dict "topologyKey" $key "labelSelector" $selector)) }}
{{- end }}
{{- $_ := set $affinity "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" $preferred) }}
{{- end }}
affinity:
  {{- toYaml $affinity | nindent 2 }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ toYaml . | nindent 4 | trim }}
    {{- if not .labelSelector }}
    labelSelector:
      matchLabels:
        {{- include "tandem.component.selectorLabels" $ | nindent 8 }}
    {{- end }}
    {{- if not .matchLabelKeys }}
    # Only pods of the same revision count, else a rollout is spread against the pods it replaces.
    matchLabelKeys: [pod-template-hash]
    {{- end }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Takes the values of an operator, whose Pods and hooks are on one network. */}}
{{- define "tandem.podNetwork" -}}
{{- if .hostNetwork }}
hostNetwork: true
{{- end }}
{{- with .dnsPolicy | default (.hostNetwork | default false | ternary "ClusterFirstWithHostNet" "") }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .dnsConfig }}
dnsConfig:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Takes a map, or nothing. Helm removes a key that is set to null, but only where the chart's values have that key. */}}
{{- define "tandem.withoutNulls" -}}
{{- $left := dict -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $left $key $value -}}
{{- end -}}
{{- end -}}
{{- with $left -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- define "tandem.component.adminPort" -}}
{{- splitList ":" .values.adminAddress | last -}}
{{- end -}}

{{- define "tandem.component.args" -}}
- run
- --write-strategy={{ .root.Values.writeStrategy }}
{{- with .values.watchNamespace }}
- --watch-namespace={{ . }}
{{- end }}
- --lease-name={{ include "tandem.component.fullname" . }}
- --lease-namespace=$(POD_NAMESPACE)
{{- with .values.leaderElection }}
- --lease-duration-seconds={{ .leaseDurationSeconds }}
- --renew-deadline-seconds={{ .renewDeadlineSeconds }}
- --retry-period-seconds={{ .retryPeriodSeconds }}
{{- end }}
{{- /* The operators' own default is not repeated. Its variable is refused in extraEnv: the probes follow the value. */ -}}
{{- if ne .values.adminAddress "[::]:8080" }}
- {{ printf "--admin-address=%s" .values.adminAddress | quote }}
{{- end }}
- --log-format={{ .root.Values.global.logFormat }}
- {{ include "tandem.logLevel" .root | printf "--log-level=%s" | quote }}
{{- if eq .name "nodepool-operator" }}
{{- with .root.Values.drains }}
- --max-parallel-drains={{ int .maxParallel }}
{{- end }}
{{- range .root.Values.providers.exec }}
- {{ printf "--exec-provider=%s=%s" .name .path | quote }}
{{- end }}
{{- if .root.Values.providers.exec }}
- --exec-max-concurrent={{ .root.Values.providers.execMaxConcurrent }}
- --exec-calls-per-second={{ .root.Values.providers.execCallsPerSecond }}
- --exec-call-burst={{ int .root.Values.providers.execCallBurst }}
{{- end }}
{{- with .root.Values.clusterId }}
- {{ printf "--cluster-id=%s" . | quote }}
{{- end }}
{{- with .root.Values.providers.clusterApi.kubeconfig }}
- {{ printf "--cluster-api-kubeconfig=%s" . | quote }}
{{- end }}
{{- end }}
{{- end -}}
