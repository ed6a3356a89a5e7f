{{/* The library's pod template, filled in for a role: {{ include "training-job.template" (list . $job "master" $template) | fromJson }} */}}
{{- define "training-job.template" -}}
{{- $context := index . 0 -}}
{{- $job := index . 1 -}}
{{- $role := index . 2 -}}
{{- $result := deepCopy (index . 3) -}}
{{- $library := $context.Files.Get "files/library.json" | fromJson -}}
{{- $asked := index $job.asked $role -}}
{{- $pod := $result.spec -}}
{{- $container := first $pod.containers -}}
{{- $_ := set $result "metadata" (include "training-job.meta" (list $job $result.metadata) | fromJson) -}}
{{- $_ := unset $container "command" -}}
{{- $_ := unset $container "args" -}}
{{- $_ := set $container "imagePullPolicy" $job.image_pull_policy -}}
{{- with include "training-job.command" (list $library $job) | fromJsonArray }}{{ $_ := set $container "command" . }}{{ end -}}
{{- $args := include "training-job.args" (list $library $job) | fromJsonArray -}}
{{- if $args }}{{ $_ := set $container "args" $args }}{{ end -}}
{{- $_ := set $container "env" (include "training-job.env" (list $job $asked $container.env) | fromJsonArray) -}}
{{- $from := list -}}
{{- range $job.secrets }}{{ $from = append $from (dict "secretRef" (dict "name" .)) }}{{ end -}}
{{- if $from }}{{ $_ := set $container "envFrom" $from }}{{ end -}}
{{- $requests := dict "cpu" $asked.cpu.request "memory" $asked.memory.request -}}
{{- $limits := dict -}}
{{- range $name := list "cpu" "memory" }}{{ with (index $asked $name).limit }}{{ $_ := set $limits $name . }}{{ end }}{{ end -}}
{{- $claims := and $asked.gpus (hasPrefix $library.claim.resource $asked.gpu_resource) -}}
{{- if and $asked.gpus (not $claims) -}}
{{- range $side := list $requests $limits }}{{ $_ := set $side $asked.gpu_resource (toString (int $asked.gpus)) }}{{ end -}}
{{- end -}}
{{- $_ := set $container "resources" (dict "requests" $requests) -}}
{{- if $limits }}{{ $_ := set $container.resources "limits" $limits }}{{ end -}}
{{- if $claims -}}
{{- $claim := dict "name" $library.claim.name "resourceClaimTemplateName" (include "training-job.claim" (list $library $job $asked)) -}}
{{- $_ := set $pod "resourceClaims" (list $claim) -}}
{{- $_ := set $container.resources "claims" (list (dict "name" $library.claim.name)) -}}
{{- end -}}
{{- $volumes := list -}}
{{- $mounts := list -}}
{{- range $index, $volume := $job.volumes -}}
{{- if or (ne ($volume.on | default "all") "master") (eq $role "master") -}}
{{- $claim := dict "claimName" $volume.claim -}}
{{- $mount := dict "name" (printf "claim-%d" $index) "mountPath" $volume.mount -}}
{{- if $volume.read_only }}{{ $_ := set $claim "readOnly" true }}{{ $_ := set $mount "readOnly" true }}{{ end -}}
{{- $volumes = append $volumes (dict "name" $mount.name "persistentVolumeClaim" $claim) -}}
{{- $mounts = append $mounts $mount -}}
{{- end -}}
{{- end -}}
{{- if and $job.script (not (hasPrefix "/" $job.script)) -}}
{{- $volumes = append $volumes (dict "name" "script" "configMap" (dict "name" (include "training-job.script" (list $context $job)))) -}}
{{- $mounts = append $mounts (dict "name" "script" "mountPath" $library.scriptFolder "readOnly" true) -}}
{{- end -}}
{{- if $job.shm_size -}}
{{- $memory := dict "medium" "Memory" "sizeLimit" (include "training-job.text" $job.shm_size) -}}
{{- $volumes = append $volumes (dict "name" "shm" "emptyDir" $memory) -}}
{{- $mounts = append $mounts (dict "name" "shm" "mountPath" "/dev/shm") -}}
{{- end -}}
{{- if $volumes }}{{ $_ := set $pod "volumes" $volumes }}{{ $_ := set $container "volumeMounts" $mounts }}{{ end -}}
{{- $tolerated := $job.tolerations | default list -}}
{{- if $asked.gpus -}}
{{- $usual := ternary list (list $library.gpuToleration) (gt (len $tolerated) 0) -}}
{{- $site := list -}}
{{- range $taint := $context.Values.gpu_taints -}}
{{- $how := dict "operator" "Exists" -}}
{{- with $taint.value }}{{ $how = dict "operator" "Equal" "value" . }}{{ end -}}
{{- $site = append $site (merge (dict "key" $taint.key "effect" $taint.effect) $how) -}}
{{- end -}}
{{- $tolerated = concat $tolerated ($job.gpu_tolerations | default $site | default $usual) -}}
{{- end -}}
{{- $own := $tolerated -}}
{{- range $lost := $library.lostNode -}}
{{- $covered := false -}}
{{- range $own -}}
{{- if and (has (.key | default "") (list "" $lost.key)) (has (.effect | default "") (list "" $lost.effect)) }}{{ $covered = true }}{{ end -}}
{{- end -}}
{{- if not $covered }}{{ $tolerated = append $tolerated $lost }}{{ end -}}
{{- end -}}
{{- $_ := set $pod "tolerations" $tolerated -}}
{{- with $job.node_selector }}{{ $_ := set $pod "nodeSelector" . }}{{ end -}}
{{- range $job.pull_secrets }}{{ $_ := set $pod "imagePullSecrets" (append ($pod.imagePullSecrets | default list) (dict "name" .)) }}{{ end -}}
{{- toJson $result -}}
{{- end -}}

{{/* A container's command: a script starts through torchrun. {{ include "training-job.command" (list $library $job) | fromJsonArray }} */}}
{{- define "training-job.command" -}}
{{- $library := index . 0 -}}
{{- $job := index . 1 -}}
{{- if $job.script -}}
{{- $path := ternary $job.script (printf "%s/%s" $library.scriptFolder (base $job.script)) (hasPrefix "/" $job.script) -}}
{{- $launcher := ternary $library.quickLauncher $library.launcher (hasPrefix $library.trainer $path) -}}
{{- concat $launcher (index $library.launch $job.backend) (list (printf "--nproc-per-node=%d" (int $job.processes_per_node)) $path) | toJson -}}
{{- else }}{{ $job.command | default list | toJson }}{{ end -}}
{{- end -}}

{{/* A container's arguments: the trainer's flags, then the job's own. {{ include "training-job.args" (list $library $job) | fromJsonArray }} */}}
{{- define "training-job.args" -}}
{{- $library := index . 0 -}}
{{- $job := index . 1 -}}
{{- $flags := list -}}
{{- if or $job.hyperparameters $job.output -}}
{{- if or $job.hyperparameters (hasPrefix "/" $job.script) -}}
{{- $flags = list "--backend" $job.collective -}}
{{- end -}}
{{- range $pair := $library.hyperparameters -}}
{{- $name := first $pair -}}
{{- if hasKey ($job.hyperparameters | default dict) $name -}}
{{- $value := include "training-job.text" (index $job.hyperparameters $name) -}}
{{- if and (eq (last $pair) "float") (not (regexMatch "[.e]" $value)) }}{{ $value = printf "%s.0" $value }}{{ end -}}
{{- $flags = concat $flags (list (printf "--%s" ($name | replace "_" "-")) $value) -}}
{{- end -}}
{{- end -}}
{{- with $job.output }}{{ $flags = concat $flags (list "--output" .) }}{{ end -}}
{{- end -}}
{{- concat $flags ($job.args | default list) | default list | toJson -}}
{{- end -}}

{{/* A container's environment: the library's names, threads per process, the job's own. {{ include "training-job.env" (list $job $asked $env) | fromJsonArray }} */}}
{{- define "training-job.env" -}}
{{- $job := index . 0 -}}
{{- $cpu := (index . 1).cpu.request -}}
{{- $cores := ternary (div (trimSuffix "m" $cpu | int64) 1000) (floor (float64 (trimSuffix "m" $cpu)) | int64) (hasSuffix "m" $cpu) -}}
{{- $own := deepCopy ($job.env | default dict) -}}
{{- $result := list -}}
{{- range $variable := index . 2 -}}
{{- if eq $variable.name "OMP_NUM_THREADS" }}{{ $_ := set $variable "value" (max 1 (div $cores (int $job.processes_per_node)) | toString) }}{{ end -}}
{{- if hasKey $own $variable.name -}}
{{- $_ := set $variable "value" (index $own $variable.name) -}}
{{- $_ := unset $own $variable.name -}}
{{- end -}}
{{- $result = append $result $variable -}}
{{- if and (eq $variable.name "GANGPLANK_JOB_UID") (eq (toString $job.observe) "false") -}}
{{- $result = append $result (dict "name" "GANGPLANK_OBSERVE" "value" "0") -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := $own }}{{ $result = append $result (dict "name" $name "value" $value) }}{{ end -}}
{{- toJson $result -}}
{{- end -}}
