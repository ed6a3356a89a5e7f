{{/* The job with its defaults, as JSON: {{ $job := include "training-job.job" . | fromJson }} */}}
{{- define "training-job.job" -}}
{{- $library := .Files.Get "files/library.json" | fromJson -}}
{{- $input := .Values.training_job -}}
{{- $job := deepCopy $library.defaults -}}
{{- range $name, $value := $input }}{{ $_ := set $job $name $value }}{{ end -}}
{{- $defaults := deepCopy $library.resources -}}
{{- with .Values.gpu_device_class }}{{ $_ := set $defaults "gpu_resource" (printf "%s%s" $library.claim.resource .) }}{{ end -}}
{{- $all := include "training-job.resources" (dict "input" ($input.resources | default dict) "defaults" $defaults) | fromJson -}}
{{- $master := include "training-job.resources" (dict "input" ($input.master_resources | default dict) "defaults" $all) | fromJson -}}
{{- $gpus := max ($all.gpus | int) ($master.gpus | int) -}}
{{- $_ := set $job "asked" (dict "worker" $all "master" $master) -}}
{{- $_ := set $job "gpus" $gpus -}}
{{- $_ := set $job "team_label" $library.teamLabel -}}
{{- $_ := set $job "replicas" (add1 (int $job.workers)) -}}
{{- if not $job.processes_per_node }}{{ $_ := set $job "processes_per_node" (max $gpus 1) }}{{ end -}}
{{- if not $job.collective }}{{ $_ := set $job "collective" (ternary "nccl" "gloo" (gt $gpus 0)) }}{{ end -}}
{{- if and (not $job.shm_size) $gpus }}{{ $_ := set $job "shm_size" $library.shm_size }}{{ end -}}
{{- $_ := set $job "namespace" ($job.namespace | default $job.team | default .Release.Namespace) -}}
{{- $_ := set $job "queue" ($job.queue | default $job.team | default "default") -}}
{{- toJson $job -}}
{{- end -}}

{{/* A number as text without an exponent: {{ include "training-job.text" 1000000 }} */}}
{{- define "training-job.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end -}}

{{/* The resources that a replica requests, with defaults: {{ include "training-job.resources" (dict "input" … "defaults" …) | fromJson }} */}}
{{- define "training-job.resources" -}}
{{- $input := .input -}}
{{- $result := deepCopy .defaults -}}
{{- range $name := list "cpu" "memory" -}}
{{- with index $input $name -}}
{{- if kindIs "map" . -}}
{{- range $side, $amount := . }}{{ $_ := set (index $result $name) $side (include "training-job.text" $amount) }}{{ end -}}
{{- else }}{{ $_ := set (index $result $name) "request" (include "training-job.text" .) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if kindIs "map" $input.gpus -}}
{{- $_ := set $result "gpus" ($input.gpus.limit | default $input.gpus.request | default 0) -}}
{{- else if hasKey $input "gpus" }}{{ $_ := set $result "gpus" $input.gpus }}{{ end -}}
{{- with $input.gpu_resource }}{{ $_ := set $result "gpu_resource" . }}{{ end -}}
{{- toJson $result -}}
{{- end -}}

{{/* The back-end's manifest with this job's names in it: {{ include "training-job.manifest" (list . $job) | fromJson }} */}}
{{- define "training-job.manifest" -}}
{{- $library := (index . 0).Files.Get "files/library.json" | fromJson -}}
{{- $job := index . 1 -}}
{{- $text := index $library.manifests $job.backend | toJson -}}
{{- range $name := list "name" "namespace" "image" "queue" -}}
{{- $text = $text | replace (printf "@%s@" $name) (index $job $name) -}}
{{- end -}}
{{- $result := $text | replace "@port@" (toString (int $job.port)) | fromJson -}}
{{- $_ := set $result "metadata" (include "training-job.meta" (list $job $result.metadata) | fromJson) -}}
{{- toJson $result -}}
{{- end -}}

{{/* Metadata with the job's labels and annotations: the chart's labels and the job's annotations have priority.
     {{ include "training-job.meta" (list $job $metadata) | fromJson }} */}}
{{- define "training-job.meta" -}}
{{- $job := index . 0 -}}
{{- $result := deepCopy (index . 1) -}}
{{- if $job.team }}{{ $_ := set $result.labels $job.team_label $job.team }}{{ end -}}
{{- range $key, $text := $job.labels -}}
{{- if not (hasKey $result.labels $key) }}{{ $_ := set $result.labels $key $text }}{{ end -}}
{{- end -}}
{{- if $job.annotations -}}
{{- $notes := $result.annotations | default dict -}}
{{- range $key, $text := $job.annotations }}{{ $_ := set $notes $key $text }}{{ end -}}
{{- $_ := set $result "annotations" $notes -}}
{{- end -}}
{{- toJson $result -}}
{{- end -}}

{{/* The name of the ConfigMap with the script, which depends on its content: {{ include "training-job.script" (list . $job) }} */}}
{{- define "training-job.script" -}}
{{- $job := index . 1 -}}
{{- $digest := printf "%s\n%s\n%s" $job.backend (base $job.script) (index . 0).Values.script | sha256sum -}}
{{- printf "%s-script-%s" $job.name ($digest | trunc (int ((index . 0).Files.Get "files/library.json" | fromJson).digestLength)) -}}
{{- end -}}

{{/* The name of the template of a replica's claim: {{ include "training-job.claim" (list $library $job $asked) }} */}}
{{- define "training-job.claim" -}}
{{- $library := index . 0 -}}
{{- $job := index . 1 -}}
{{- $asked := index . 2 -}}
{{- $class := trimPrefix $library.claim.resource $asked.gpu_resource -}}
{{- $digest := printf "%s\n%s\n%d" $job.backend $class (int $asked.gpus) | sha256sum -}}
{{- printf "%s-%s-%s" $job.name $library.claim.name ($digest | trunc (int $library.claim.digestLength)) -}}
{{- end -}}
