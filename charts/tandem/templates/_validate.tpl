{{/*
What a JSON schema cannot say, because it compares two values or reads a text. What an operator refuses at its start is
refused here, in the operator's own words: a release that installs must not be a crash loop.
*/}}
{{- define "tandem.component.validate" -}}
{{- include "tandem.component.validateOnly" . -}}
{{- include "tandem.component.validateLease" . -}}
{{- include "tandem.component.validateArgs" . -}}
{{- include "tandem.component.validatePod" . -}}
{{- include "tandem.validateLogLevel" .root -}}
{{- include "tandem.validateAccounts" .root -}}
{{- include "tandem.validatePrograms" .root -}}
{{- include "tandem.validateHostNetwork" .root.Values -}}
{{- include "tandem.validateLevel" .root -}}
{{- include "tandem.validateMonitors" .root -}}
{{- include "tandem.validateServiceName" .root -}}
{{- include "tandem.validateCommonLabels" .root.Values.commonLabels -}}
{{- include "tandem.validatePoolLimits" .root.Values.poolLimits -}}
{{- with .root.Values -}}
{{- $namespaces := list (.nodepoolOperator.watchNamespace | default "") (.autoscalerOperator.watchNamespace | default "") -}}
{{- if ne (first $namespaces) (last $namespaces) -}}
{{- $why := "must be the same: pools that only one operator sees are planned and never filled, or filled and never planned" -}}
{{- fail (printf "nodepoolOperator.watchNamespace (%q) and autoscalerOperator.watchNamespace (%q) %s" (first $namespaces) (last $namespaces) $why) -}}
{{- end -}}
{{- if eq (first $namespaces) $.root.Release.Namespace -}}
{{- $why := "when it is deleted, the operators go with it, and the finalizers of its pools wait for them; install the release in another one" -}}
{{- fail (printf "nodepoolOperator.watchNamespace and autoscalerOperator.watchNamespace are the release's own namespace (%q): %s" (first $namespaces) $why) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Two releases that watch the same pools have a Lease each and one field manager: both make nodes for a pool, and each overwrites what the
other reports. Helm itself refuses a second release that has the definitions too. `helm template` knows no server and finds no other
release. One that is scaled to zero does nothing, so another may follow it. An upgrade does not ask: a user who may not list Deployments
would be kept from upgrading.
*/}}
{{- define "tandem.component.validateOnly" -}}
{{- if and .root.Release.IsInstall .root.Values.refuseSecondRelease (not .root.Values.crds.enabled) -}}
{{- $own := .values.watchNamespace | default "" -}}
{{- range (lookup "apps/v1" "Deployment" "" "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- $release := get $labels "app.kubernetes.io/instance" -}}
{{- $isOther := not (and (eq $release $.root.Release.Name) (eq .metadata.namespace $.root.Release.Namespace)) -}}
{{- $isOperator := and (eq (get $labels "app.kubernetes.io/part-of") "tandem") (eq (get $labels "app.kubernetes.io/component") $.name) -}}
{{- if and $isOperator $isOther (gt (int .spec.replicas) 0) -}}
{{- $watched := "" -}}
{{- range .spec.template.spec.containers -}}
{{- range .args -}}
{{- if hasPrefix "--watch-namespace=" . -}}
{{- $watched = trimPrefix "--watch-namespace=" . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if or (eq $own "") (eq $watched "") (eq $own $watched) -}}
{{- $why := "both would make nodes for the same pools and overwrite each other's status; uninstall it, scale its Deployments to 0, or give each release a watchNamespace of its own" -}}
{{- fail (printf "the %s of release %s in namespace %s watches %s already: %s" $.name $release .metadata.namespace ($watched | default "all namespaces") $why) -}}
{{- end -}}
{{- end -}}
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

{{/* Takes the root. Pools name a program: of two with one name, one would never be called. */}}
{{- define "tandem.validatePrograms" -}}
{{- $names := list -}}
{{- range .Values.providers.exec -}}
{{- if has .name $names -}}
{{- fail (printf "providers.exec: two programs have the name %s; pools choose one by its name, so give each its own" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
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
{{- if eq $flag "--exec-provider" -}}
{{- fail (printf "%s: set providers.exec instead of --exec-provider: the chart chooses an image in which something reaps what a program leaves behind" $at) -}}
{{- end -}}
{{- include "tandem.component.validateByValue" (dict "component" $ "at" $at "given" $flag) -}}
{{- if has $flag $own -}}
{{- fail (printf "%s: %s is given by the chart already; set the value that it comes from" $at $flag) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
What the chart itself reads, from the value alone: how many replicas there may be, what the roles and policies name, where the probes ask. Takes
a dict of `component`, `given` (a flag, or the variable that sets it) and `at` (where it is given).
*/}}
{{- define "tandem.component.validateByValue" -}}
{{- $values := .component.name | camelcase | untitle -}}
{{- if has .given (list "--leader-elect" "TANDEM_LEADER_ELECT") -}}
{{- if gt (int .component.values.replicas) 1 -}}
{{- $why := "without leader election every replica would act on the same pools; leave it out, or set" -}}
{{- fail (printf "%s: %s is for one replica, and %s.replicas is %d: %s %s.replicas to 1" .at .given $values (int .component.values.replicas) $why $values) -}}
{{- end -}}
{{- else if has .given (list "--watch-namespace" "TANDEM_WATCH_NAMESPACE") -}}
{{- $why := "the other operator, the roles and the policies follow these values" -}}
{{- fail (printf "%s: set nodepoolOperator.watchNamespace and autoscalerOperator.watchNamespace instead of %s: %s" .at .given $why) -}}
{{- else if has .given (list "--admin-address" "TANDEM_ADMIN_ADDRESS") -}}
{{- fail (printf "%s: set %s.adminAddress instead of %s: the probes and the Service follow that value" .at $values .given) -}}
{{- end -}}
{{- end -}}

{{/*
The filter of the logs. Of a parent chart, `global.logLevel` may be meant for others: cert-manager has a number there, and refuses text. A
number is never read as a level of Tandem's: what cert-manager logs by default with 2 is `info`, and here 2 would be `warn`.
*/}}
{{- define "tandem.logLevel" -}}
{{- $shared := .Values.global.logLevel -}}
{{- if .Values.logLevel -}}
{{- .Values.logLevel -}}
{{- else if kindIs "string" $shared -}}
{{- $shared -}}
{{- else if .Chart.IsRoot -}}
{{- fail (printf "global.logLevel (%v) must be text, as in info or info,shared_runtime::write=debug; where it is for other charts, set logLevel" $shared) -}}
{{- else -}}
info
{{- end -}}
{{- end -}}

{{/* Takes the root. A word that is no level would be taken for the name of a module, and nothing else be logged. */}}
{{- define "tandem.validateLogLevel" -}}
{{- $at := empty .Values.logLevel | ternary "global.logLevel" "logLevel" -}}
{{- $filter := include "tandem.logLevel" . -}}
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
{{- fail (printf "%s %q: %q is no level; %s" $at $filter (first .) $levels) -}}
{{- end -}}
{{- end -}}

{{/* What the API server would refuse, or take for something else. */}}
{{- define "tandem.component.validatePod" -}}
{{- $at := .name | camelcase | untitle -}}
{{- range .values.extraEnv -}}
{{- if has .name (list "POD_NAME" "POD_NAMESPACE") -}}
{{- fail (printf "%s.extraEnv: %s is given by the chart already" $at .name) -}}
{{- end -}}
{{- include "tandem.component.validateByValue" (dict "component" $ "at" (printf "%s.extraEnv" $at) "given" .name) -}}
{{- if eq .name "TANDEM_EXEC_PROVIDER" -}}
{{- fail (printf "%s.extraEnv: set providers.exec instead of TANDEM_EXEC_PROVIDER: the chart chooses an image in which something reaps what a program leaves behind" $at) -}}
{{- end -}}
{{- end -}}
{{- /* 127.0.0.0/8 and ::1, and the former as IPv6 has it. */ -}}
{{- if regexMatch "^(127\\.|\\[[0:]*:0*1\\]|\\[[0:]*:ffff:(127\\.|7f[0-9a-f]{2}:))" (lower .values.adminAddress) -}}
{{- fail (printf "%s.adminAddress: the kubelet asks at the pod's address, and %s is a loopback address: no probe and no scrape would reach it" $at .values.adminAddress) -}}
{{- end -}}
{{- $names := list .name -}}
{{- range concat (.values.initContainers | default list) (.values.extraContainers | default list) -}}
{{- if has .name $names -}}
{{- fail (printf "%s: two containers have the name %s; rename the one in initContainers or extraContainers" $at .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- if and (eq (.values.dnsPolicy | default "") "None") (not (.values.dnsConfig | default dict).nameservers) -}}
{{- fail (printf "%s.dnsPolicy is None, so %s.dnsConfig.nameservers must name at least one server" $at $at) -}}
{{- end -}}
{{- with .values.serviceAccount -}}
{{- if not (or .create .name) -}}
{{- fail (printf "%s.serviceAccount.create is false, so %s.serviceAccount.name must be the name of an account in the release's namespace" $at $at) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Takes the root. By the account, RBAC and the policies of `rbac.fieldFirewall` tell the operators apart. */}}
{{- define "tandem.validateAccounts" -}}
{{- $nodepool := include "tandem.component.serviceAccountName" (dict "root" . "name" "nodepool-operator" "values" .Values.nodepoolOperator) -}}
{{- $autoscaler := include "tandem.component.serviceAccountName" (dict "root" . "name" "autoscaler-operator" "values" .Values.autoscalerOperator) -}}
{{- if eq $nodepool $autoscaler -}}
{{- $why := "each operator needs an account of its own: with one for both, each has the rights of both, and rbac.fieldFirewall refuses to each what only the other may write" -}}
{{- fail (printf "both operators have the account %q: %s; set another nodepoolOperator.serviceAccount.name or autoscalerOperator.serviceAccount.name" $nodepool $why) -}}
{{- end -}}
{{- end -}}

{{- define "tandem.validateHostNetwork" -}}
{{- $ports := list -}}
{{- range $at := list "nodepoolOperator" "autoscalerOperator" -}}
{{- with get $ $at -}}
{{- if .hostNetwork -}}
{{- $ports = splitList ":" .adminAddress | last | append $ports -}}
{{- if $.networkPolicy.enabled -}}
{{- fail (printf "%s.hostNetwork and networkPolicy.enabled exclude each other: no NetworkPolicy holds for a Pod on its node's network" $at) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if gt (len $ports) (uniq $ports | len) -}}
{{- fail (printf "both operators have hostNetwork and the port %s in adminAddress, so no node could run both: give one of them another port" (first $ports)) -}}
{{- end -}}
{{- end -}}

{{/*
Takes the root. Pod Security refuses Pods, and not the Deployment that makes them: the release would be installed, and never run. A namespace
that Helm makes has no level, and `helm template` knows no server.
*/}}
{{- define "tandem.validateLevel" -}}
{{- range $at := list "nodepoolOperator" "autoscalerOperator" -}}
{{- if (get $.Values $at).hostNetwork -}}
{{- $labels := dig "metadata" "labels" dict (lookup "v1" "Namespace" "" $.Release.Namespace) -}}
{{- $level := get $labels "pod-security.kubernetes.io/enforce" -}}
{{- if has $level (list "baseline" "restricted") -}}
{{- $why := "which refuses every Pod on its node's network; leave hostNetwork out, or install the release in a namespace with the level privileged" -}}
{{- fail (printf "%s.hostNetwork: the namespace %s enforces the level %s of Pod Security, %s" $at $.Release.Namespace $level $why) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
A server that lacks the definitions would say `no matches for kind`. `helm template` knows no server, and what it renders is
often for one that gets the definitions first; only where this namespace is found is there a server that was asked.
*/}}
{{- define "tandem.validateMonitors" -}}
{{- with .Values.metrics -}}
{{- if and .serviceMonitor.enabled (not .service.enabled) -}}
{{- fail "metrics.serviceMonitor.enabled needs metrics.service.enabled: a ServiceMonitor finds pods through their Service; metrics.podMonitor needs none" -}}
{{- end -}}
{{- if and .serviceMonitor.enabled .podMonitor.enabled -}}
{{- fail "metrics.serviceMonitor.enabled and metrics.podMonitor.enabled exclude each other: Prometheus would scrape every pod twice" -}}
{{- end -}}
{{- end -}}
{{- range $kind := list "ServiceMonitor" "PodMonitor" -}}
{{- if (get $.Values.metrics (untitle $kind)).enabled -}}
{{- with get $.Values.metrics (untitle $kind) -}}
{{- if gt (include "tandem.milliseconds" .scrapeTimeout | int) (include "tandem.milliseconds" .interval | int) -}}
{{- fail (printf "metrics.%s.scrapeTimeout (%s) must not be longer than its interval (%s): Prometheus scrapes no such target" (untitle $kind) .scrapeTimeout .interval) -}}
{{- end -}}
{{- end -}}
{{- if not ($.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" $kind)) -}}
{{- if lookup "v1" "Namespace" "" "kube-system" -}}
{{- fail (printf "metrics.%s.enabled: this cluster has no %s in monitoring.coreos.com/v1; install the Prometheus operator's CustomResourceDefinitions first" (untitle $kind) $kind) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Takes a duration of Prometheus, as 1m30s. */}}
{{- define "tandem.milliseconds" -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h)" . -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $sum = trimSuffix $unit . | atoi | mul (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000) $unit) | add $sum -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* Takes the root. Of all that the chart makes, a Service alone may not have a name that begins with a digit, which a release may. */}}
{{- define "tandem.validateServiceName" -}}
{{- $name := include "tandem.fullname" . -}}
{{- if and .Values.metrics.service.enabled (not (regexMatch "^[a-z]" $name)) -}}
{{- fail (printf "metrics.service.enabled: the names of the Services would begin with %q, and the name of a Service begins with a letter; set fullnameOverride, or install a release of another name" $name) -}}
{{- end -}}
{{- end -}}

{{/* Takes the labels. By these the cluster's own roles would include those of the operators. */}}
{{- define "tandem.validateCommonLabels" -}}
{{- range $key, $_ := . -}}
{{- if hasPrefix "rbac.authorization.k8s.io/" $key -}}
{{- fail (printf "commonLabels: %s on every role would give users the rights of the operators; see rbac.aggregateToView and rbac.aggregateToEdit" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Takes the rules. One that judges no pool, or names what it does not allow, is a mistake: it would bound less than it says. */}}
{{- define "tandem.validatePoolLimits" -}}
{{- $judged := list -}}
{{- range $index, $rule := . -}}
{{- $own := list -}}
{{- range $rule.namespaces -}}
{{- if not (or (has . $judged) (has "*" $judged)) -}}
{{- $own = append $own . -}}
{{- end -}}
{{- end -}}
{{- if not $own -}}
{{- fail (printf "poolLimits[%d] judges no pool: the rules before it name all of its namespaces, and the first that does is the one that holds" $index) -}}
{{- end -}}
{{- $judged = concat $judged $own -}}
{{- range $names, $provider := dict "programs" "exec" "nodeClasses" "karpenter" "machineDeployments" "clusterApi" -}}
{{- if and (hasKey $rule $names) (hasKey $rule "providers") (not (has $provider $rule.providers)) -}}
{{- fail (printf "poolLimits[%d].%s needs %s in poolLimits[%d].providers" $index $names $provider $index) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
