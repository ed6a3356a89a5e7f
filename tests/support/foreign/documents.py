"""What the cluster's administrator would have written: kubeadm's configuration, containerd's, the pod network's."""

from __future__ import annotations

import json
from typing import Any

import yaml

PODS, SERVICES = "10.244.0.0/16", "10.96.0.0/16"  # kubeadm's customs, and not the lab's
VERSION = "v1.34.4"  # lab/versions.yml, part kubeadm
DNS = "v1.15.0"  # the same file, part coredns
API = "kubeadm.k8s.io/v1beta4"
POD_SECURITY = """
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
  - name: PodSecurity
    configuration:
      apiVersion: pod-security.admission.config.k8s.io/v1
      kind: PodSecurityConfiguration
      defaults: {enforce: restricted, enforce-version: latest}
      exemptions: {namespaces: [kube-system]}
"""
STORAGE: dict[str, Any] = {
    "storageClass": {"name": "standard", "defaultClass": True, "provisionerName": "example.org/folders"},
    "nodePathMap": [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["/var/lib/kubelet/folders"]}],
    "helperImage": {"repository": "docker.io/library/busybox", "tag": "1.37"},
    "image": {"repository": "docker.io/rancher/local-path-provisioner", "tag": "v0.0.30"},
}


def text(*objects: dict[str, Any]) -> str:
    """Objects as YAML documents."""
    return yaml.safe_dump_all(objects)


def _registration(name: str, flags: dict[str, str]) -> dict[str, Any]:
    arguments = [{"name": flag, "value": value} for flag, value in flags.items()]
    socket = "unix:///run/containerd/containerd.sock"
    return {"name": name, "criSocket": socket, "imagePullPolicy": "IfNotPresent", "kubeletExtraArgs": arguments}


def init(address: str, name: str, flags: dict[str, str]) -> str:
    """The configuration of `kubeadm init`."""
    mount = "/etc/kubernetes/pod-security.yaml"
    return text(
        {
            "apiVersion": API,
            "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": address},
            "nodeRegistration": _registration(name, flags),
        },
        {
            "apiVersion": API,
            "kind": "ClusterConfiguration",
            "kubernetesVersion": VERSION,
            "clusterName": "foreign",
            "dns": {"imageTag": DNS},
            "networking": {"podSubnet": PODS, "serviceSubnet": SERVICES},
            "apiServer": {
                "extraArgs": [{"name": "admission-control-config-file", "value": mount}],
                "extraVolumes": [{"name": "pod-security", "hostPath": mount, "mountPath": mount, "readOnly": True,
                                  "pathType": "File"}],
            },
        },
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "featureGates": {"KubeletInUserNamespace": True},  # the machine may lack CAP_SYS_RESOURCE
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        },
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "conntrack": {"maxPerCore": 0},
        },
    )  # fmt: skip


def join(api: str, name: str, flags: dict[str, str], token: str, digest: str) -> str:
    """The configuration of `kubeadm join`."""
    bootstrap = {"token": token, "apiServerEndpoint": f"{api}:6443", "caCertHashes": [digest]}
    return text(
        {
            "apiVersion": API,
            "kind": "JoinConfiguration",
            "discovery": {"bootstrapToken": bootstrap},
            "nodeRegistration": _registration(name, flags),
        }
    )


def containerd(pause: str, plugins: str, privileged: bool) -> str:
    """containerd's configuration."""
    return f"""version = 4
required_plugins = ["io.containerd.grpc.v1.cri"]
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = {"false" if privileged else "true"}
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = false
"""


def pod_network(subnet: str) -> str:
    """The CNI configuration of a node with this pod range."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True, "ipMasq": False, "ipam": ipam}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, portmap]})
