module gangplank/lab/nvidia-device-plugin

go 1.26.6

require github.com/NVIDIA/k8s-device-plugin v0.19.3
