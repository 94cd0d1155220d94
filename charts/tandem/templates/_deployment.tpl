{{/* The Deployment of an operator: the same for both but for its name, image and values. */}}

{{- define "tandem.component.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "tandem.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "tandem.component.labels" . | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  {{- include "tandem.component.strategy" . | nindent 2 }}
  selector:
    matchLabels:
      {{- include "tandem.component.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      # Labels of the chart win over `podLabels`: the selectors above and below depend on them.
      labels:
        {{- merge (include "tandem.component.labels" . | fromYaml) (.values.podLabels | default dict) | toYaml | nindent 8 }}
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
serviceAccountName: {{ include "tandem.component.fullname" . }}
automountServiceAccountToken: true
# The kubelet would set TANDEM_… variables for Services of this name, and the operators read variables of that prefix.
enableServiceLinks: false
{{- with include "tandem.pullSecrets" .root | trim }}
imagePullSecrets:
  {{- . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
# Longer than the 20 s in which running reconciles end; then the Lease is released.
terminationGracePeriodSeconds: 30
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
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
    ports:
      - name: admin
        containerPort: 8080
        protocol: TCP
    livenessProbe:
      httpGet:
        path: /livez
        port: admin
      periodSeconds: 10
      timeoutSeconds: 5
      failureThreshold: 3
    readinessProbe:
      httpGet:
        path: /readyz
        port: admin
      periodSeconds: 5
      timeoutSeconds: 5
    {{- with .values.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      capabilities:
        drop: [ALL]
      readOnlyRootFilesystem: true
    {{- with .values.extraVolumeMounts }}
    volumeMounts:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    # An operator that cannot start says why on stderr: show it in `kubectl describe pod`.
    terminationMessagePolicy: FallbackToLogsOnError
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
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
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
- --log-format={{ .root.Values.global.logFormat }}
- {{ printf "--log-level=%s" .root.Values.global.logLevel | quote }}
{{- if eq .name "nodepool-operator" }}
{{- with .root.Values.drains }}
- --max-parallel-drains={{ int .maxParallel }}
{{- end }}
{{- range .root.Values.providers.exec }}
- --exec-provider={{ .name }}={{ .path }}
{{- end }}
{{- if .root.Values.providers.exec }}
- --exec-max-concurrent={{ .root.Values.providers.execMaxConcurrent }}
{{- end }}
{{- with .root.Values.clusterId }}
- {{ printf "--cluster-id=%s" . | quote }}
{{- end }}
{{- with .root.Values.providers.clusterApi.kubeconfig }}
- {{ printf "--cluster-api-kubeconfig=%s" . | quote }}
{{- end }}
{{- end }}
{{- end -}}
