"""OpenShift would admit what we install: Volcano with a grant for its own accounts only, the operator without one.

The rules of SecurityContextConstraints follow OpenShift's documentation; they were not tested on OpenShift.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pytest
import yaml

from lab.build.parts import build
from tests.support.helm import KUBERNETES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"volcano_namespace": "batch-system", "volcano_release": "v"}
Json = dict[str, Any]


def variables(role: str) -> Json:
    content: Json = yaml.safe_load((ROOT / f"roles/{role}/vars/main.yml").read_text())
    return content


def template(*arguments: str) -> list[Json]:
    """What Helm renders."""
    helm = build(["helm"], print)["bin"]["helm"]
    done = subprocess.run(
        [f"{helm}/helm", "template", KUBERNETES, *arguments], capture_output=True, text=True, check=True, timeout=60
    )
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def pods(items: list[Json]) -> Iterator[Json]:
    """The specs of all pods."""
    for item in items:
        if "template" in item.get("spec", {}):
            yield item["spec"]["template"]["spec"]


def why_not(pod: Json, scc: Json) -> list[str]:
    """What a SecurityContextConstraints with MustRunAsNonRoot refuses of a pod."""
    refusals = [f"host: {key}" for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]
    kinds = {kind for volume in pod.get("volumes", []) for kind in volume if kind != "name"} | {"projected"}
    refusals += [f"volume: {kind}" for kind in sorted(kinds - {*scc["volumes"]})]
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        context = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
        powers = context.get("capabilities", {})
        refusals += [f"capability: {name}" for name in powers.get("add", []) if name not in scc["allowedCapabilities"]]
        refusals += ["capabilities are not dropped"] if powers.get("drop") != ["ALL"] else []
        refusals += ["root"] if context.get("runAsUser") == 0 or not context.get("runAsNonRoot") else []
        refusals += ["privilege escalation"] if context.get("allowPrivilegeEscalation") is not False else []
        refusals += ["seccomp"] if context.get("seccompProfile") != {"type": "RuntimeDefault"} else []
    return refusals


@pytest.fixture(scope="module")
def scc() -> Json:
    """Volcano's SecurityContextConstraints, rendered."""
    text = jinja2.Template(yaml.safe_dump(variables("volcano")["__volcano_scc"])).render(NAMES)
    constraints: Json = yaml.safe_load(text)
    return constraints


@pytest.fixture(scope="module")
def volcano() -> list[Json]:
    chart = build(["volcano"], print)["charts"]["volcano"]
    return list(pods(template(NAMES["volcano_release"], chart, "--namespace", NAMES["volcano_namespace"])))


def test_volcanos_pods_are_admitted(volcano: list[Json], scc: Json) -> None:
    assert [why_not(pod, scc) for pod in volcano] == [[]] * len(volcano)


def test_exactly_the_accounts_that_need_it_are_granted_it(volcano: list[Json], scc: Json) -> None:
    asking = {
        pod["serviceAccountName"] if "serviceAccountName" in pod else pod["serviceAccount"]
        for pod in volcano
        if any("DAC_OVERRIDE" in c["securityContext"]["capabilities"]["add"] for c in pod["containers"])
    }
    prefix = f"system:serviceaccount:{NAMES['volcano_namespace']}:"
    assert sorted(scc["users"]) == sorted(prefix + name for name in asking)
    assert scc["groups"] == []


def test_nothing_is_granted_that_no_pod_requests(volcano: list[Json], scc: Json) -> None:
    added = {name for pod in volcano for c in pod["containers"] for name in c["securityContext"]["capabilities"]["add"]}
    assert added == {*scc["allowedCapabilities"]}
    assert not any(value for key, value in scc.items() if key.startswith("allow") and key != "allowedCapabilities")


def test_the_training_operator_leaves_its_user_to_the_platform(tmp_path: Path) -> None:
    values = variables("training_operator")["__training_operator_openshift_values"]
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    items = template("t", str(ROOT / "charts/training-operator"), "--values", str(tmp_path / "values.yaml"))
    restricted = {
        "volumes": ["configMap", "emptyDir", "projected", "secret"],
        "allowedCapabilities": ["NET_BIND_SERVICE"],
    }
    injected = next(item["data"] for item in items if item["kind"] == "ConfigMap")
    init = [
        container
        for text in injected.values()
        for container in yaml.safe_load(text.replace("{{", "").replace("}}", ""))
    ]
    specs = [*pods(items), {"containers": init}]
    assert len(specs) == 2
    for pod in specs:
        assert why_not(pod, restricted) == []
        assert "runAsUser" not in str(pod)
        assert "runAsGroup" not in str(pod)


def test_any_other_cluster_gets_our_user() -> None:
    text = str(list(pods(template("t", str(ROOT / "charts/training-operator")))))
    assert "runAsUser" in text
