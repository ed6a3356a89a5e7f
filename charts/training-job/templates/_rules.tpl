{{/* Refuses a value: {{ include "training-job.refuse" (list "training_job.queue" $got "what is expected" "what to do") }} */}}
{{- define "training-job.refuse" -}}
{{- fail (printf "%s: got %s, expected %s. Fix: %s" (index . 0) (index . 1 | toJson) (index . 2) (index . 3)) -}}
{{- end -}}

{{/* Refuses what no single field shows: {{ include "training-job.rules" (list . $job) }}. Each rule is one of gangplank/jobs/rules.py. */}}
{{- define "training-job.rules" -}}
{{- $context := index . 0 -}}
{{- $job := index . 1 -}}
{{- $library := $context.Files.Get "files/library.json" | fromJson -}}

{{- $longest := printf "%s-worker-%d" $job.name (sub (max 1 (int $job.workers)) 1) -}}
{{- if gt (len $longest) ($library.longest | int) -}}
{{- $expected := printf "a name whose longest pod name, %s, has at most %v characters" $longest $library.longest -}}
{{- include "training-job.refuse" (list "training_job.name" $job.name $expected "shorten it") -}}
{{- end -}}

{{- if and $job.script $job.command -}}
{{- $expected := "script or command, not both: script already starts with torchrun" -}}
{{- include "training-job.refuse" (list "training_job.command" $job.command $expected "remove one of the two") -}}
{{- end -}}

{{- if and (not $job.script) (or $job.hyperparameters $job.output) -}}
{{- $expected := "a script: hyperparameters and output need a script" -}}
{{- include "training-job.refuse" (list "training_job.script" "" $expected "pass them to your command in args") -}}
{{- end -}}

{{- $torchrun := regexMatch "torchrun|torch.distributed.run" (toString $job.command) -}}
{{- if and (not $job.script) (gt (int $job.processes_per_node) 1) (not $torchrun) -}}
{{- $fix := "use script, or start your command with torchrun" -}}
{{- $expected := "1 for a command that is not torchrun" -}}
{{- include "training-job.refuse" (list "training_job.processes_per_node" $job.processes_per_node $expected $fix) -}}
{{- end -}}

{{- if and $job.script (not (hasSuffix ".py" $job.script)) -}}
{{- $fix := "start other programs with command and args" -}}
{{- include "training-job.refuse" (list "training_job.script" $job.script "a path that ends in .py" $fix) -}}
{{- end -}}

{{- if and $job.script (not (hasPrefix "/" $job.script)) (not $context.Values.script) -}}
{{- $fix := printf "add --set-file script=%s, or %s" $job.script $library.instead -}}
{{- $expected := "an absolute path, or the content of the file, which travels with the job" -}}
{{- include "training-job.refuse" (list "training_job.script" $job.script $expected $fix) -}}
{{- end -}}

{{- if gt (len $context.Values.script) ($library.scriptLimit | int) -}}
{{- $expected := printf "at most %v, which a ConfigMap holds" $library.scriptLimit -}}
{{- $fix := "put it into an image and set training_job.script to its absolute path" -}}
{{- include "training-job.refuse" (list "script" (printf "%d bytes" (len $context.Values.script)) $expected $fix) -}}
{{- end -}}

{{- if and $context.Values.script (or (not $job.script) (hasPrefix "/" $job.script)) -}}
{{- $expected := "a relative path, as the script travels with the job" -}}
{{- $fix := "set it to the script's file name, or leave --set-file script out" -}}
{{- include "training-job.refuse" (list "training_job.script" ($job.script | default "") $expected $fix) -}}
{{- end -}}

{{- range $role, $asked := $job.asked -}}
{{- if and (eq $job.collective "nccl") $context.Values.simulated_gpus -}}
{{- $expected := "gloo (this site's GPUs are simulated: pods get them, but CUDA does not run on them)" -}}
{{- include "training-job.refuse" (list "training_job.collective" "nccl" $expected "set collective: gloo") -}}
{{- end -}}

{{- if and (eq $job.collective "nccl") (not $asked.gpus) -}}
{{- $expected := printf "gloo, as nccl needs GPUs on the %s" $role -}}
{{- include "training-job.refuse" (list "training_job.collective" "nccl" $expected "request GPUs, or use gloo") -}}
{{- end -}}
{{- if and $asked.gpus (lt (int $asked.gpus) (int $job.processes_per_node)) -}}
{{- $expected := printf "at most %v, the GPUs of the %s" $asked.gpus $role -}}
{{- $fix := "lower it, or request more GPUs" -}}
{{- include "training-job.refuse" (list "training_job.processes_per_node" $job.processes_per_node $expected $fix) -}}
{{- end -}}
{{- end -}}

{{- range $name := list "resources" "master_resources" -}}
{{- $gpus := (index $job $name | default dict).gpus -}}
{{- if kindIs "map" $gpus -}}
{{- if and $gpus.request $gpus.limit (ne (int $gpus.request) (int $gpus.limit)) -}}
{{- $expected := "one number, as GPUs cannot be overcommitted" -}}
{{- include "training-job.refuse" (list (printf "training_job.%s.gpus" $name) $gpus $expected "set one number") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if and $job.min_available (gt (int $job.min_available) (int $job.replicas)) -}}
{{- $expected := printf "at most the job's %v replicas" $job.replicas -}}
{{- include "training-job.refuse" (list "training_job.min_available" $job.min_available $expected "lower it") -}}
{{- end -}}

{{- if eq $job.queue "root" -}}
{{- $expected := "a leaf queue, as Volcano refuses jobs in the root queue" -}}
{{- include "training-job.refuse" (list "training_job.queue" $job.queue $expected "name a leaf queue") -}}
{{- end -}}

{{- $mounts := list -}}
{{- $taken := list -}}
{{- if $job.shm_size }}{{ $taken = append $taken "/dev/shm" }}{{ end -}}
{{- if $context.Values.script }}{{ $taken = append $taken $library.scriptFolder }}{{ end -}}
{{- range $index, $volume := $job.volumes -}}
{{- $path := printf "training_job.volumes[%d]" $index -}}
{{- $mount := trimSuffix "/" $volume.mount -}}
{{- if or (not $mount) (has $mount $mounts) (has $mount $taken) -}}
{{- $expected := "a folder below / that no other volume has" -}}
{{- include "training-job.refuse" (list (printf "%s.mount" $path) $volume.mount $expected "mount it elsewhere") -}}
{{- end -}}
{{- $mounts = append $mounts $mount -}}

{{- $everywhere := and (ne ($volume.on | default "all") "master") (gt (int $job.replicas) 1) -}}
{{- $access := $volume.access | default "ReadWriteOnce" -}}
{{- $shared := has $access (list "ReadWriteMany" "ReadOnlyMany") -}}
{{- $pinned := hasKey ($job.node_selector | default dict) "kubernetes.io/hostname" -}}
{{- if and $everywhere (not $shared) (not $pinned) -}}
{{- $many := "mount it `on: master`, or use a ReadWriteMany claim and set `access: ReadWriteMany`" -}}
{{- $fix := printf "%s, or pin the job to one node with node_selector kubernetes.io/hostname" $many -}}
{{- include "training-job.refuse" (list (printf "%s.access" $path) $access "a claim that many nodes can mount" $fix) -}}
{{- end -}}
{{- end -}}

{{- range $name, $place := dict "output" $job.output "hyperparameters.dir" (get ($job.hyperparameters | default dict) "dir") -}}
{{- $kept := or (not $job.volumes) (not (hasPrefix "/" ($place | default ""))) -}}
{{- range $mounts }}{{ if hasPrefix (printf "%s/" .) (printf "%s/" (trimSuffix "/" ($place | default ""))) }}{{ $kept = true }}{{ end }}{{ end -}}
{{- if not $kept -}}
{{- $expected := "a folder below one of the volumes' mounts; elsewhere it is lost with the pod" -}}
{{- include "training-job.refuse" (list (printf "training_job.%s" $name) $place $expected "change it or a mount") -}}
{{- end -}}
{{- $nearest := "" -}}
{{- $readOnly := false -}}
{{- range $volume := $job.volumes -}}
{{- $mount := trimSuffix "/" $volume.mount -}}
{{- $above := hasPrefix (printf "%s/" $mount) (printf "%s/" (trimSuffix "/" ($place | default ""))) -}}
{{- if and $above (ge (len $mount) (len $nearest)) -}}
{{- $nearest = $mount -}}
{{- $readOnly = $volume.read_only | default false -}}
{{- end -}}
{{- end -}}
{{- if $readOnly -}}
{{- $fix := "choose another folder, or leave read_only out" -}}
{{- include "training-job.refuse" (list (printf "training_job.%s" $name) $place "a folder of a volume that is not read_only" $fix) -}}
{{- end -}}
{{- end -}}
{{- end -}}
