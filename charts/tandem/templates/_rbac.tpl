{{/*
How an operator's roles are bound; what they allow stands in the operator's rbac.yaml. Each operator has two ClusterRoles:
one for what only exists in, or is needed from, the whole cluster, and `…-pools` for Tandem's own resources. Where one
namespace is watched, the Autoscaler's second role is bound there alone. The NodePool operator's is not: a binding in a
namespace goes with it, before the pools there have let go of their nodes, and without it they never would. What it writes
is kept to that namespace by a policy instead (rbac-watched.yaml). Templates take the dict described in _names.tpl, and here
with `finishes` true for an operator that objects in a deleted namespace wait for.
*/}}

{{- define "tandem.component.subject" -}}
- kind: ServiceAccount
  name: {{ include "tandem.component.serviceAccountName" . | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
{{- end -}}

{{- define "tandem.component.bindings" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- include "tandem.component.metadata" (dict "component" .) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "tandem.component.fullname" . }}
subjects:
  {{- include "tandem.component.subject" . | nindent 2 }}
---
{{- $namespace := .finishes | ternary "" .values.watchNamespace }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ empty $namespace | ternary "ClusterRoleBinding" "RoleBinding" }}
metadata:
  {{- include "tandem.component.metadata" (dict "component" . "suffix" "-pools" "namespace" $namespace) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "tandem.component.fullname" . }}-pools
subjects:
  {{- include "tandem.component.subject" . | nindent 2 }}
{{- end -}}

{{/* Takes the names of the cluster's roles that shall include a role; renders the labels that they find it by. */}}
{{- define "tandem.aggregate" -}}
{{- range . }}
rbac.authorization.k8s.io/aggregate-to-{{ . }}: "true"
{{- end }}
{{- end -}}
