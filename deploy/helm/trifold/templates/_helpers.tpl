{{- /* Whether the head's state is in Redis: true, or nothing. */}}
{{- define "trifold.ha" -}}
{{- $byDefault := has .Values.served (list "cpu" "gpu") }}
{{- if ne .Values.served "plain" }}
{{- if or (eq (toString .Values.ha.enabled) "true") (and (eq (toString .Values.ha.enabled) "auto") $byDefault) }}true{{ end }}
{{- end }}
{{- end }}

{{- /* The files of resources that the values ask for, a line each. */}}
{{- define "trifold.files" -}}
{{ .Values.served }}
{{- if and (include "trifold.ha" .) (not .Values.ha.address) }}{{ "\nha" }}{{ end }}
{{- if .Values.monitoring.enabled }}{{ "\nmonitoring" }}{{ end }}
{{- if ne .Values.networkPolicy "none" }}{{ "\nnetwork-policy-" }}{{ .Values.networkPolicy }}
{{- if eq .Values.packages.from "store" }}{{ "\nnetwork-policy-store" }}{{ end }}{{ end }}
{{- if eq .Values.entrance.kind "gateway-api" }}{{ "\ngateway-api-plain" }}
{{- else if ne .Values.entrance.kind "none" }}{{ "\n" }}{{ .Values.entrance.kind }}{{ end }}
{{- if and .Values.keda.enabled (eq .Values.served "plain") }}{{ "\nkeda" }}{{ end }}
{{- end }}

{{- /* Where packages come from, as files/models-*.yaml adds it to a pod, with the values: root. */}}
{{- define "trifold.packages" -}}
{{- $packages := .root.Values.packages }}
{{- $added := .root.Files.Get (printf "files/models-%s.yaml" $packages.from) | fromYaml }}
{{- $volume := first $added.volumes }}
{{- if eq $packages.from "volume" }}{{ $_ := set $volume.persistentVolumeClaim "claimName" $packages.claim }}
{{- else if eq $packages.from "image" }}{{ $_ := set $volume.image "reference" $packages.image }}
{{- else }}
{{- $_ := set $volume.emptyDir "sizeLimit" $packages.room }}
{{- $fetch := first $added.initContainers }}
{{- with .root.Values.image.cpu }}{{ $_ := set $fetch "image" . }}{{ end }}
{{- $_ := set $fetch "imagePullPolicy" .root.Values.image.pullPolicy }}
{{- $_ := set (first $fetch.envFrom).secretRef "name" $packages.secret }}
{{- /* It asks over HTTPS, so it needs the certificates and proxies that the service is given. */}}
{{- with .root.Values.env }}{{ $_ := set $fetch "env" (concat ($fetch.env | default list) .) }}{{ end }}
{{- with .root.Values.volumeMounts }}{{ $_ := set $fetch "volumeMounts" (concat $fetch.volumeMounts .) }}{{ end }}
{{- range $bound := list $fetch.resources.requests $fetch.resources.limits }}
{{- $_ := set $bound "ephemeral-storage" (include "trifold.storage" $packages.room) }}
{{- end }}
{{- end }}
{{- toYaml $added }}
{{- end }}

{{- /* What a pod may store in all that has so much room for packages: 6Gi more, for logs and /tmp. */}}
{{- define "trifold.storage" -}}
{{- $unit := regexFind "[MGT]i$" . }}
{{- $mebibytes := mul (trimSuffix $unit . | int64) (get (dict "Mi" 1 "Gi" 1024 "Ti" 1048576) $unit) | add 6144 }}
{{- if mod $mebibytes 1024 }}{{ $mebibytes }}Mi{{ else }}{{ div $mebibytes 1024 }}Gi{{ end }}
{{- end }}

{{- /* Changes a pod's template: template, its image's name in the values, overrides, and root. */}}
{{- define "trifold.pod" -}}
{{- $values := .root.Values }}
{{- $spec := .template.spec }}
{{- $container := first $spec.containers }}
{{- with get $values.image .image }}{{ $_ := set $container "image" . }}{{ end }}
{{- $_ := set $container "imagePullPolicy" $values.image.pullPolicy }}
{{- include "trifold.pulling" (dict "spec" $spec "root" .root) }}
{{- /* A name that is there already is replaced, as Kubernetes may refuse it twice. */}}
{{- $replaced := list }}
{{- $isAnonymous := false }}
{{- range $values.env }}
{{- $replaced = append $replaced .name }}
{{- if and (eq .name "TRIFOLD_ALLOW_ANONYMOUS") (eq (toString .value) "true") }}{{ $isAnonymous = true }}{{ end }}
{{- end }}
{{- if $isAnonymous }}
{{- $replaced = append $replaced "TRIFOLD_API_KEYS_FILE" }}
{{- range $spec.volumes }}{{ if eq .name "keys" }}{{ $_ := set .secret "optional" true }}{{ end }}{{ end }}
{{- end }}
{{- $variables := list }}
{{- range $container.env }}{{ if not (has .name $replaced) }}{{ $variables = append $variables . }}{{ end }}{{ end }}
{{- $_ := set $container "env" (concat $variables ($values.env | default list)) }}
{{- $more := list (dict "volumes" $values.volumes "volumeMounts" $values.volumeMounts "initContainers" $values.initContainers) }}
{{- if $values.packages.from }}{{ $more = prepend $more (include "trifold.packages" . | fromYaml) }}{{ end }}
{{- range $more }}
{{- with .volumes }}{{ $_ := set $spec "volumes" (concat $spec.volumes .) }}{{ end }}
{{- with .volumeMounts }}{{ $_ := set $container "volumeMounts" (concat $container.volumeMounts .) }}{{ end }}
{{- with .initContainers }}{{ $_ := set $spec "initContainers" (concat ($spec.initContainers | default list) .) }}{{ end }}
{{- end }}
{{- /* What a pod reads at its start alone: of the models file a Ray cluster's pods are told by Serve. */}}
{{- $sums := dict }}
{{- with $values.packages.list }}{{ $_ := set $sums "checksum/packages" (toYaml . | sha256sum) }}{{ end }}
{{- if and $values.models (eq $values.served "plain") }}
{{- $_ := set $sums "checksum/models" (sha256sum $values.models) }}
{{- end }}
{{- $given := $values.podAnnotations | default dict | deepCopy }}
{{- $annotations := merge $sums $given (.template.metadata.annotations | default dict) }}
{{- with $annotations }}{{ $_ := set $.template.metadata "annotations" . }}{{ end }}
{{- /* What is given as a limit or as a request alone is both, as requests above limits are refused. */}}
{{- with .overrides.resources }}
{{- $given := . }}
{{- $resources := mergeOverwrite (deepCopy $container.resources) $given }}
{{- range $from, $to := dict "limits" "requests" "requests" "limits" }}
{{- $other := get $given $to | default dict }}
{{- range $name, $amount := get $given $from | default dict }}
{{- if not (or (hasKey $other $name) (kindIs "invalid" $amount)) }}{{ $_ := set (get $resources $to) $name $amount }}{{ end }}
{{- end }}
{{- end }}
{{- /* null takes one away. */}}
{{- range $bounds := list "limits" "requests" }}
{{- range $name, $amount := get $resources $bounds }}
{{- if kindIs "invalid" $amount }}{{ $_ := unset (get $resources $bounds) $name }}{{ end }}
{{- end }}
{{- end }}
{{- $_ := set $container "resources" $resources }}
{{- end }}
{{- include "trifold.placing" (dict "spec" $spec "overrides" .overrides) }}
{{- with .overrides.affinity }}{{ $_ := set $spec "affinity" . }}{{ end }}
{{- $mounted := false }}
{{- range $spec.volumes }}{{ if eq .name "models-file" }}{{ $mounted = true }}{{ end }}{{ end }}
{{- if and $values.models (not $mounted) }}
{{- $file := (.root.Files.Get "files/models-file.yaml" | fromYaml).spec }}
{{- $_ := set $spec "volumes" (append $spec.volumes $file.volume) }}
{{- $_ := set $container "volumeMounts" (append $container.volumeMounts $file.mount) }}
{{- $_ := set $container "env" (append $container.env $file.environment) }}
{{- end }}
{{- end }}

{{- /* Changes with what secrets a pod's images are pulled: its spec, and root. */}}
{{- define "trifold.pulling" -}}
{{- with .root.Values.image.pullSecrets }}
{{- $secrets := list }}
{{- range . }}{{ $secrets = append $secrets (dict "name" .) }}{{ end }}
{{- $_ := set $.spec "imagePullSecrets" $secrets }}
{{- end }}
{{- end }}

{{- /* Changes which nodes a pod may come to, and before whom: its spec, and overrides. */}}
{{- define "trifold.placing" -}}
{{- $spec := .spec }}
{{- with .overrides.tolerations }}{{ $_ := set $spec "tolerations" (concat ($spec.tolerations | default list) .) }}{{ end }}
{{- range $field := list "nodeSelector" "priorityClassName" }}
{{- with get $.overrides $field }}{{ $_ := set $spec $field . }}{{ end }}
{{- end }}
{{- end }}

{{- /* Changes Redis: set, and root. */}}
{{- define "trifold.redis" -}}
{{- $values := .root.Values }}
{{- $spec := .set.spec.template.spec }}
{{- $claim := first .set.spec.volumeClaimTemplates }}
{{- with $values.ha.image }}{{ $_ := set (first $spec.containers) "image" . }}{{ end }}
{{- with $values.ha.storageClass }}{{ $_ := set $claim.spec "storageClassName" . }}{{ end }}
{{- include "trifold.pulling" (dict "spec" $spec "root" .root) }}
{{- include "trifold.placing" (dict "spec" $spec "overrides" $values.ha) }}
{{- end }}

{{- /* Changes the cluster: service, and root. */}}
{{- define "trifold.rayservice" -}}
{{- $values := .root.Values }}
{{- $root := .root }}
{{- $cluster := .service.spec.rayClusterConfig }}
{{- with $values.serveConfig }}{{ $_ := set $.service.spec "serveConfigV2" . }}{{ end }}
{{- if include "trifold.ha" .root }}
{{- $patch := .root.Files.Get "files/fault-tolerance.yaml" | fromYaml }}
{{- with $values.ha.address }}
{{- $_ := set $patch.spec.rayClusterConfig.gcsFaultToleranceOptions "redisAddress" . }}
{{- end }}
{{- $_ := mergeOverwrite .service $patch }}
{{- $_ := set .service.metadata "namespace" $root.Release.Namespace }}
{{- $variable := (.root.Files.Get "files/reconnection.yaml" | fromYaml).spec.variable }}
{{- range $group := prepend $cluster.workerGroupSpecs $cluster.headGroupSpec }}
{{- $container := first $group.template.spec.containers }}
{{- $_ := set $container "env" (append $container.env $variable) }}
{{- end }}
{{- end }}
{{- $head := dict "template" $cluster.headGroupSpec.template "image" "cpu" "overrides" $values.head "root" $root }}
{{- include "trifold.pod" $head }}
{{- range $group := $cluster.workerGroupSpecs }}
{{- $overrides := get $values.workers $group.groupName }}
{{- include "trifold.pod" (dict "template" $group.template "image" $group.groupName "overrides" $overrides "root" $root) }}
{{- if hasKey $overrides "minReplicas" }}
{{- $_ := set $group "minReplicas" $overrides.minReplicas }}
{{- $_ := set $group "replicas" $overrides.minReplicas }}
{{- end }}
{{- if hasKey $overrides "maxReplicas" }}{{ $_ := set $group "maxReplicas" $overrides.maxReplicas }}{{ end }}
{{- if lt (int $group.maxReplicas) (int $group.minReplicas) }}
{{- if hasKey $overrides "maxReplicas" }}{{ fail (printf "workers.%s: maxReplicas is below minReplicas" $group.groupName) }}{{ end }}
{{- $_ := set $group "maxReplicas" $group.minReplicas }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Changes the Deployment of plain. */}}
{{- define "trifold.deployment" -}}
{{- $spec := .deployment.spec }}
{{- $overrides := .root.Values.pods }}
{{- include "trifold.pod" (dict "template" $spec.template "image" "cpu" "overrides" $overrides "root" .root) }}
{{- if .root.Values.keda.enabled }}
{{- /* Without a number pods that run would become one as KEDA is turned on; with it they stay until KEDA decides. */}}
{{- $running := lookup "apps/v1" "Deployment" .root.Release.Namespace "trifold" }}
{{- if $running }}{{ $_ := set $spec "replicas" (int $running.spec.replicas) }}
{{- else }}{{ $_ := unset $spec "replicas" }}{{ end }}
{{- else if hasKey $overrides "replicas" }}{{ $_ := set $spec "replicas" $overrides.replicas }}{{ end }}
{{- end }}

{{- /* Changes what stands before the service: resource, and entrance. */}}
{{- define "trifold.entrance" -}}
{{- $spec := .resource.spec }}
{{- $entrance := .entrance }}
{{- if eq .resource.kind "Gateway" }}
{{- if eq $entrance.kind "gateway-api" }}
{{- with $entrance.gatewayClass }}{{ $_ := set $spec "gatewayClassName" . }}{{ end }}
{{- end }}
{{- range $listener := $spec.listeners }}
{{- $_ := set $listener "hostname" $entrance.host }}
{{- if $listener.tls }}{{ $_ := set (first $listener.tls.certificateRefs) "name" $entrance.secret }}{{ end }}
{{- end }}
{{- else if eq .resource.kind "HTTPRoute" }}{{ $_ := set $spec "hostnames" (list $entrance.host) }}
{{- else if eq .resource.kind "Ingress" }}
{{- $_ := set (first $spec.rules) "host" $entrance.host }}
{{- /* Without one the controller looks for a certificate of the host. */}}
{{- $annotations := omit .resource.metadata.annotations "alb.ingress.kubernetes.io/certificate-arn" }}
{{- with $entrance.certificateArn }}{{ $_ := set $annotations "alb.ingress.kubernetes.io/certificate-arn" . }}{{ end }}
{{- $_ := set .resource.metadata "annotations" $annotations }}
{{- end }}
{{- end }}

{{- /* Changes what KEDA does: scaled, and root. */}}
{{- define "trifold.keda" -}}
{{- $keda := .root.Values.keda }}
{{- if lt (int $keda.maxReplicas) (int $keda.minReplicas) }}{{ fail "keda: maxReplicas is below minReplicas" }}{{ end }}
{{- $_ := set .scaled.spec "minReplicaCount" $keda.minReplicas }}
{{- $_ := set .scaled.spec "maxReplicaCount" $keda.maxReplicas }}
{{- $namespace := printf "namespace=%q" .root.Release.Namespace }}
{{- $thresholds := dict "requests" $keda.requests "queued-tokens" $keda.queuedTokens "slots-used" $keda.slotsUsed }}
{{- range $trigger := .scaled.spec.triggers }}
{{- $_ := set $trigger.metadata "threshold" (get $thresholds $trigger.name | int | toString) }}
{{- $_ := set $trigger.metadata "serverAddress" $keda.prometheus }}
{{- $_ := set $trigger.metadata "query" (replace "namespace=\"trifold\"" $namespace $trigger.metadata.query) }}
{{- end }}
{{- end }}
