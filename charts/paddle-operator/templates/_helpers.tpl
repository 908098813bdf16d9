{{/* The namespaces of the jobs as a list; empty means all. */}}
{{- define "paddle-operator.jobNamespaces" -}}
{{- $found := list -}}
{{- range splitList "," (.Values.jobnamespace | default "") -}}
{{- if trim . }}{{ $found = append $found (trim .) }}{{ end -}}
{{- end -}}
{{- $found | uniq | toJson -}}
{{- end -}}

{{/* Permissions for jobs and their children; tests/install/test_chart.py compares them with config/rbac/role.yaml. */}}
{{- define "paddle-operator.rules" -}}
- apiGroups: [batch.paddlepaddle.org]
  resources: [paddlejobs]
  verbs: [delete, list, patch, watch]
- apiGroups: [batch.paddlepaddle.org]
  resources: [paddlejobs/status]
  verbs: [patch]
- apiGroups: [batch.paddlepaddle.org]
  resources: [paddlejobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [create, delete, deletecollection, get, list, patch, watch]
- apiGroups: [""]
  resources: [services]
  verbs: [create, delete, deletecollection, get, list, watch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, delete, get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
- apiGroups: [scheduling.volcano.sh]
  resources: [podgroups]
  verbs: [create, delete, get, list, patch, watch]
{{- end -}}

{{- define "paddle-operator.subject" -}}
- kind: ServiceAccount
  name: {{ .Values.serviceAccount.name | quote }}
  namespace: {{ .Values.controllernamespace | quote }}
{{- end -}}
