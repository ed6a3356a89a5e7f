{{/* Refuses what no single field shows: {{ include "training-job.rules" (list . $job) }}. Each rule is one of gangplank/jobs/rules.py. */}}
{{- define "training-job.rules" -}}
{{- $context := index . 0 -}}
{{- $job := index . 1 -}}
{{- $library := $context.Files.Get "files/library.json" | fromJson -}}
{{- $longest := printf "%s-worker-%d" $job.name (sub (max 1 (int $job.workers)) 1) -}}
{{- if gt (len $longest) ($library.longest | int) }}{{ fail (printf "training_job.name: the longest pod name, %s, has more than %v characters; shorten it" $longest $library.longest) }}{{ end -}}
{{- if and $job.script $job.command }}{{ fail "training_job.command: script or command, not both; script starts through torchrun by itself" }}{{ end -}}
{{- if and (not $job.script) (or $job.hyperparameters $job.output) }}{{ fail "training_job.script: hyperparameters and output need a script; pass them to your command in args" }}{{ end -}}
{{- if and (not $job.script) (gt (int $job.processes_per_node) 1) (not (regexMatch "torchrun|torch.distributed.run" (toString $job.command))) }}{{ fail "training_job.processes_per_node: 1 for a command that is not torchrun; use script, or start your command with torchrun" }}{{ end -}}
{{- if $job.script -}}
{{- if not (hasSuffix ".py" $job.script) }}{{ fail "training_job.script: a path that ends in .py; start other programs with command and args" }}{{ end -}}
{{- if and (not (hasPrefix "/" $job.script)) (not $context.Values.script) }}{{ fail (printf "training_job.script: %s travels with the job; add --set-file script=%s, or %s" $job.script $job.script $library.instead) }}{{ end -}}
{{- end -}}
{{- if gt (len $context.Values.script) ($library.scriptLimit | int) }}{{ fail "script: more than a ConfigMap holds; put it into an image and give its absolute path" }}{{ end -}}
{{- if and $context.Values.script (or (not $job.script) (hasPrefix "/" $job.script)) }}{{ fail "script: needs training_job.script to be a relative path" }}{{ end -}}
{{- range $role, $asked := $job.asked -}}
{{- if and (eq $job.collective "nccl") (not $asked.gpus) }}{{ fail (printf "training_job.collective: nccl needs GPUs on the %s; ask for them, or use gloo" $role) }}{{ end -}}
{{- if and $asked.gpus (lt (int $asked.gpus) (int $job.processes_per_node)) }}{{ fail (printf "training_job.processes_per_node: at most the %s's GPUs, %v" $role $asked.gpus) }}{{ end -}}
{{- end -}}
{{- range $name := list "resources" "master_resources" -}}
{{- $gpus := (index $job $name | default dict).gpus -}}
{{- if and (kindIs "map" $gpus) $gpus.request $gpus.limit }}{{ if ne (int $gpus.request) (int $gpus.limit) }}{{ fail (printf "training_job.%s.gpus: GPUs cannot be overcommitted; give one number" $name) }}{{ end }}{{ end -}}
{{- end -}}
{{- if and $job.min_available (gt (int $job.min_available) (int $job.replicas)) }}{{ fail (printf "training_job.min_available: at most the job's %v replicas" $job.replicas) }}{{ end -}}
{{- if eq $job.queue "root" }}{{ fail "training_job.queue: Volcano refuses jobs in the root queue; name a leaf queue" }}{{ end -}}
{{- $mounts := list -}}
{{- $kept := or (not $job.volumes) (not (hasPrefix "/" ($job.output | default "/"))) -}}
{{- range $index, $volume := $job.volumes -}}
{{- $mount := trimSuffix "/" $volume.mount -}}
{{- if or (not $mount) (has $mount $mounts) }}{{ fail (printf "training_job.volumes[%d].mount: a folder below / that no other volume has" $index) }}{{ end -}}
{{- $mounts = append $mounts $mount -}}
{{- if hasPrefix (printf "%s/" $mount) (printf "%s/" (trimSuffix "/" ($job.output | default $mount))) }}{{ $kept = true }}{{ end -}}
{{- $shared := has ($volume.access | default "ReadWriteOnce") (list "ReadWriteMany" "ReadOnlyMany") -}}
{{- if and (ne ($volume.on | default "all") "master") (gt (int $job.replicas) 1) (not $shared) (not (hasKey ($job.node_selector | default dict) "kubernetes.io/hostname")) }}{{ fail (printf "training_job.volumes[%d].access: a claim that many nodes can mount; mount it `on: master`, or use a ReadWriteMany claim and say `access: ReadWriteMany`, or pin the job to one node with node_selector kubernetes.io/hostname" $index) }}{{ end -}}
{{- end -}}
{{- if not $kept }}{{ fail "training_job.output: a folder below one of the volumes' mounts; else it is lost with the pod" }}{{ end -}}
{{- end -}}
