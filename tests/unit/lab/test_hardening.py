"""What the role lab_cluster configures against pods and local users (part b of the faults)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles/lab_cluster"


def load(path: str) -> Any:
    return yaml.safe_load((ROLE / path).read_text())


def render(template: str, *parts: str) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ROLE / "templates"), trim_blocks=True, undefined=jinja2.ChainableUndefined,
        autoescape=False,  # noqa: S701  YAML and JSON, as Ansible renders them
    )  # fmt: skip
    numbers = {"__lab_cluster_memory_mib": 8192, "__lab_cluster_node_memory_mib": 2048,
               "__lab_cluster_bin": dict.fromkeys(parts, "/bin")}  # fmt: skip
    return environment.get_template(template).render(load("defaults/main.yml") | numbers)


def tasks() -> list[dict[str, Any]]:
    return list(load("tasks/main.yml"))


def test_b1_pods_have_no_ipv6() -> None:
    """NetworkPolicies are enforced for IPv4 alone, and the bridge carries link-local addresses of IPv6."""
    plugins = {plugin["type"]: plugin for plugin in json.loads(render("cni.conflist.j2"))["plugins"]}
    assert next(iter(plugins)) == "bridge"
    sysctls = ("net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6")
    assert plugins["tuning"]["sysctl"] == dict.fromkeys(sysctls, "1")
    built = yaml.safe_load((ROOT / "lab/versions.yml").read_text())["parts"]["cni-plugins"]["commands"]
    assert plugins.keys() <= built.keys()


def test_b2_a_pod_may_have_no_more_than_a_limited_number_of_processes() -> None:
    """Less than an eighth of kernel.pid_max's default, 32768."""
    assert 1024 <= yaml.safe_load(render("kubelet.yaml.j2"))["podPidsLimit"] <= 4096


def test_b3_no_pod_starts_before_the_network_policy_agent_has_its_rules() -> None:
    plugins = json.loads(render("cni.conflist.j2", "network-policy"))["plugins"]
    assert plugins[-1] == {"type": "network-policy"}


def test_b6_only_root_reads_the_folder_of_the_lab() -> None:
    (task,) = [task for task in tasks() if "ansible.builtin.file" in task]
    assert task["ansible.builtin.file"] == {"path": "{{ lab_cluster_folder }}", "state": "directory", "mode": "0700"}
    actions = {"gangplank.gangplank.lab_pki", "gangplank.gangplank.lab_files"}
    writers = [index for index, other in enumerate(tasks()) if actions & set(other)]
    assert tasks().index(task) < min(writers), "before the first file is in it"


def certificates() -> dict[str, Any]:
    return {leaf["name"]: leaf for leaf in load("vars/main.yml")["__lab_cluster_certificates"]}


def test_b7_only_the_administrator_is_a_cluster_admin() -> None:
    masters = [name for name, leaf in certificates().items() if leaf.get("organization") == "system:masters"]
    assert masters == ["admin"]


def test_b7_the_api_server_may_use_the_kubelets_and_nothing_else() -> None:
    name = certificates()["kubelet-client"]["common_name"]
    (binding,) = load("vars/main.yml")["__lab_cluster_kubelet_access"]
    assert binding["kind"] == "ClusterRoleBinding"
    assert binding["roleRef"]["name"] == "system:kubelet-api-admin"
    assert [(subject["kind"], subject["name"]) for subject in binding["subjects"]] == [("User", name)]
    (task,) = [task for task in tasks() if "__lab_cluster_kubelet_access" in str(task)]
    assert "network-policy" not in str(task.get("when", ""))


def test_b7_a_pod_without_privileges_has_no_net_raw() -> None:
    """PodSecurity refuses to add it; containerd's own default has it."""
    variables = load("vars/main.yml")
    spec = variables["__lab_cluster_base_spec"]
    start = variables["__lab_cluster_node_programs"]["containerd"].replace("{{ __lab_cluster_base_spec }}", spec)
    assert f"ctr oci spec | sed /CAP_NET_RAW/d > {spec} &&" in start
    assert 'base_runtime_spec = "{{ __lab_cluster_base_spec }}"' in (ROLE / "templates/containerd.toml.j2").read_text()


@pytest.mark.parametrize("node", ["node-0", "node-7"])
def test_b7_a_kubelet_is_its_node_and_no_more(node: str) -> None:
    loader = jinja2.FileSystemLoader(ROLE / "templates")
    environment = jinja2.Environment(loader=loader, autoescape=False)  # noqa: S701  for YAML
    template = environment.get_template("kubelet-certificates.j2")
    (leaf,) = yaml.safe_load(template.render(__lab_cluster_nodes=[{"name": node, "address": "198.18.0.1"}]))
    assert (leaf["common_name"], leaf["organization"]) == (f"system:node:{node}", "system:nodes")
    programs = load("vars/main.yml")["__lab_cluster_control_plane_programs"]["kube-apiserver"]
    assert "--authorization-mode=Node,RBAC" in programs
    assert "NodeRestriction" in programs
