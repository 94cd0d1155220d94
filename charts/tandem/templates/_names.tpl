{{/*
Names, labels and annotations. Nothing in here renders an object. What a user may name is quoted, here and elsewhere: YAML takes `2024` for a
number, `1e3` too, and `true` for a boolean.
*/}}

{{- define "tandem.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/*
The prefix of every object's name. A prefix beyond 37 characters is cut, and gets a hash so that two long names that begin alike stay apart.
What follows it is at most "-autoscaler-operator" where a name has 63 (Services, and what becomes a label), and else at most
"-nodepool-operator-cluster-api", 30 characters, where it has more (policies have 253). The limit of 37 stays: another would rename objects.
*/}}
{{- define "tandem.fullname" -}}
{{- $full := .Values.fullnameOverride -}}
{{- if not $full -}}
{{- $name := include "tandem.name" . -}}
{{- $full = contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- end -}}
{{- /* A release name may hold dots, the name of a Service may not. */ -}}
{{- $full = $full | replace "." "-" -}}
{{- if gt (len $full) 37 -}}
{{- printf "%s-%s" ($full | trunc 28 | trimSuffix "-") ($full | sha256sum | trunc 8) -}}
{{- else -}}
{{- $full -}}
{{- end -}}
{{- end -}}

{{/*
The templates below take a component: a dict of `root` (the chart's context), `name` (of the operator) and `values` (its
block in values.yaml).
*/}}

{{- define "tandem.component.fullname" -}}
{{- printf "%s-%s" (include "tandem.fullname" .root) .name -}}
{{- end -}}

{{/* `global.imageRegistry` and `global.imagePullSecrets` are what charts have in common: a parent chart sets them for all. */}}
{{- define "tandem.component.image" -}}
{{- $global := .root.Values.global.image -}}
{{- $registry := .root.Values.global.imageRegistry | default $global.registry -}}
{{- $image := .values.image -}}
{{- with .root.Values.providers -}}
{{- if and (eq $.name "nodepool-operator") .exec .execImage.repository -}}
{{- $image = .execImage -}}
{{- end -}}
{{- end -}}
{{- $repository := printf "%s/%s" $registry $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (coalesce $image.tag $global.tag .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/*
Something where a program of `exec` runs in an image that may have no init process. The operator would be process 1 there, and never
reaps what a program leaves behind. Without `exec` it starts no process, and the image tandem-exec has an init process; everywhere
else the containers share the Pod's processes, of which the first is the container runtime's, which reaps.
*/}}
{{- define "tandem.component.lacksInit" -}}
{{- with .root.Values.providers -}}
{{- if and (eq $.name "nodepool-operator") .exec (ne (base (.execImage.repository | default "none")) "tandem-exec") -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A list of `{name}`, empty when there is no secret. Some charts list names, others objects. */}}
{{- define "tandem.pullSecrets" -}}
{{- $names := list -}}
{{- range concat (.Values.global.image.pullSecrets | default list) (.Values.global.imagePullSecrets | default list) -}}
{{- $names = append $names (kindIs "string" . | ternary . (get (kindIs "string" . | ternary dict .) "name")) -}}
{{- end -}}
{{- range uniq $names }}
- name: {{ . | quote }}
{{- end -}}
{{- end -}}

{{- define "tandem.component.serviceAccountName" -}}
{{- .values.serviceAccount.name | default (include "tandem.component.fullname" .) -}}
{{- end -}}

{{- define "tandem.releaseLabels" -}}
app.kubernetes.io/name: {{ include "tandem.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "tandem.component.selectorLabels" -}}
{{ include "tandem.releaseLabels" .root }}
app.kubernetes.io/component: {{ .name }}
{{- end -}}

{{- define "tandem.component.labels" -}}
{{ include "tandem.component.selectorLabels" . }}
{{ include "tandem.chartLabels" .root }}
{{- end -}}

{{/* Labels of objects that belong to both operators. */}}
{{- define "tandem.labels" -}}
{{ include "tandem.releaseLabels" . }}
{{ include "tandem.chartLabels" . }}
{{- end -}}

{{- define "tandem.chartLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tandem
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/*
The metadata of an object that belongs to both operators. Takes a dict of `root`, and where wanted `suffix` of the name,
`namespace`, and what only this object has: `labels` and `annotations`.
*/}}
{{- define "tandem.metadata" -}}
name: {{ printf "%s%s" (include "tandem.fullname" .root) (.suffix | default "") | quote }}
{{- include "tandem.metadata.rest" (merge (dict "own" (include "tandem.labels" .root)) .) }}
{{- end -}}

{{/* The same of an operator's object: `component` instead of `root`. */}}
{{- define "tandem.component.metadata" -}}
name: {{ printf "%s%s" (.name | default (include "tandem.component.fullname" .component)) (.suffix | default "") | quote }}
{{- include "tandem.metadata.rest" (merge (dict "root" .component.root "own" (include "tandem.component.labels" .component)) .) }}
{{- end -}}

{{/* The chart's own labels win over those of the object, and these over the common ones: selectors depend on the first. */}}
{{- define "tandem.metadata.rest" -}}
{{- with .namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- .own | nindent 2 }}
  {{- $more := merge dict (.labels | default dict) (.root.Values.commonLabels | default dict) }}
  {{- range $key, $_ := fromYaml .own }}
  {{- $more = omit $more $key }}
  {{- end }}
  {{- with $more }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge dict (.annotations | default dict) (.root.Values.commonAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
