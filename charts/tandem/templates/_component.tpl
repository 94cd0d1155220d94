{{/*
The one shape of an operator. `tandem.component` renders everything that both operators have alike; only what an
operator may do differs, and stands in its own rbac.yaml. All templates take the dict described in _names.tpl.
*/}}

{{- define "tandem.component" -}}
{{- include "tandem.component.validate" . -}}
{{- if .values.serviceAccount.create }}
{{ include "tandem.component.serviceAccount" . }}
---
{{- end }}
{{ include "tandem.component.leaseRole" . }}
{{- if .root.Values.flowSchema.enabled }}
---
{{ include "tandem.component.leaseFlowSchema" . }}
{{- end }}
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
{{- if .root.Values.metrics.podMonitor.enabled }}
---
{{ include "tandem.component.podMonitor" . }}
{{- end }}
{{- if .root.Values.networkPolicy.enabled }}
---
{{ include "tandem.component.networkPolicy" . }}
{{- end }}
{{- end -}}

{{- define "tandem.component.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- with .values.serviceAccount }}
  {{- $name := include "tandem.component.serviceAccountName" $ }}
  {{- include "tandem.component.metadata" (dict "component" $ "name" $name "namespace" $.root.Release.Namespace "labels" .labels "annotations" .annotations) | nindent 2 }}
  {{- end }}
# Only the operator's own pod asks for the token; another pod under this account does not get it by default.
automountServiceAccountToken: {{ .values.serviceAccount.automountServiceAccountToken }}
{{- end -}}

{{- define "tandem.component.leaseRole" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "tandem.component.metadata" (dict "component" . "suffix" "-lease" "namespace" .root.Release.Namespace) | nindent 2 }}
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
  {{- include "tandem.component.metadata" (dict "component" . "suffix" "-lease" "namespace" .root.Release.Namespace) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "tandem.component.fullname" . }}-lease
subjects:
  {{- include "tandem.component.subject" . | nindent 2 }}
{{- end -}}

{{/* The API server's own schema for leader election, with precedence 100, is for kube-system alone. */}}
{{- define "tandem.component.leaseFlowSchema" -}}
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata:
  {{- include "tandem.component.metadata" (dict "component" . "suffix" "-lease") | nindent 2 }}
spec:
  # A level that every API server makes. Where it was deleted, this schema has no effect.
  priorityLevelConfiguration:
    name: leader-election
  # Before `service-accounts`, which has 9000.
  matchingPrecedence: 150
  distinguisherMethod:
    type: ByUser
  rules:
    # Only Leases: everything else of the operator stays with the requests of other service accounts.
    - resourceRules:
        - apiGroups: [coordination.k8s.io]
          resources: [leases]
          verbs: [get, create, update]
          namespaces: [{{ .root.Release.Namespace | quote }}]
      subjects:
        - kind: ServiceAccount
          serviceAccount:
            name: {{ include "tandem.component.serviceAccountName" . | quote }}
            namespace: {{ .root.Release.Namespace | quote }}
{{- end -}}

{{- define "tandem.component.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "tandem.component.metadata" (dict "component" . "namespace" .root.Release.Namespace) | nindent 2 }}
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
  {{- $annotations := .root.Values.metrics.service.annotations }}
  {{- include "tandem.component.metadata" (dict "component" . "namespace" .root.Release.Namespace "annotations" $annotations) | nindent 2 }}
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

{{- define "tandem.component.networkPolicy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "tandem.component.metadata" (dict "component" . "namespace" .root.Release.Namespace) | nindent 2 }}
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
        # `helm test` asks a replica that is not ready what it waits for.
        - podSelector:
            matchLabels:
              {{- include "tandem.releaseLabels" $.root | nindent 14 }}
              app.kubernetes.io/component: test
      {{- end }}
  egress:
    {{- include "tandem.networkPolicy.egress" .root | nindent 4 }}
{{- end -}}

{{/* Takes the root. What the operators reach, and the Pods that Helm runs. */}}
{{- define "tandem.networkPolicy.egress" -}}
# Names.
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
# The API server: often outside the cluster's pods, so only its port can be named.
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
{{- with .Values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end -}}
