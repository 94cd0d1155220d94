{{/*
How an operator's roles are bound; what they allow stands in the operator's rbac.yaml. Each operator has two ClusterRoles:
one for what only exists in, or is needed from, the whole cluster, and `…-pools` for Tandem's own resources. The second is
bound in the watched namespace alone when there is one. Templates take the dict described in _names.tpl.
*/}}

{{- define "tandem.component.subject" -}}
- kind: ServiceAccount
  name: {{ include "tandem.component.fullname" . }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- define "tandem.component.bindings" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "tandem.component.fullname" . }}
  labels:
    {{- include "tandem.component.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "tandem.component.fullname" . }}
subjects:
  {{- include "tandem.component.subject" . | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ empty .values.watchNamespace | ternary "ClusterRoleBinding" "RoleBinding" }}
metadata:
  name: {{ include "tandem.component.fullname" . }}-pools
  {{- with .values.watchNamespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "tandem.component.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "tandem.component.fullname" . }}-pools
subjects:
  {{- include "tandem.component.subject" . | nindent 2 }}
{{- end -}}
