{{/* What an uninstall does while there are pools. Takes the root. */}}
{{- define "tandem.leftBehind.mode" -}}
{{- .Values.uninstall.whilePoolsExist | default (and .Values.crds.enabled (not .Values.crds.keep) | ternary "Refuse" "Ignore") -}}
{{- end -}}

{{/*
The spec of a Pod that Helm runs: a command of the NodePool operator's program. Takes a dict of `root`, `account` (its ServiceAccount), `name` (of
the container) and `args`.
*/}}
{{- define "tandem.hookPod" -}}
{{- $values := .root.Values.nodepoolOperator -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: true
enableServiceLinks: false
restartPolicy: Never
{{- with include "tandem.podNetwork" $values | trim }}
{{ . }}
{{- end }}
{{- with include "tandem.pullSecrets" .root | trim }}
imagePullSecrets:
  {{- . | nindent 2 }}
{{- end }}
{{- with include "tandem.withoutNulls" $values.podSecurityContext }}
securityContext:
  {{- . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .name }}
    image: {{ include "tandem.component.image" (dict "root" .root "name" "nodepool-operator" "values" $values) | quote }}
    imagePullPolicy: {{ .root.Values.global.image.pullPolicy }}
    args:
      {{- range .args }}
      - {{ . | quote }}
      {{- end }}
    resources:
      requests:
        cpu: 10m
        memory: 32Mi
      limits:
        memory: 64Mi
    {{- with include "tandem.withoutNulls" $values.securityContext }}
    securityContext:
      {{- . | nindent 6 }}
    {{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
