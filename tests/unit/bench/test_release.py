"""Volcano's release on the lab, as the parts with gangs find it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import jinja2
import pytest

from bench.gangs import release
from bench.part import ROOT, BenchError, Setting
from bench.parts import tried, tuning
from bench.tuned import volcano
from gangplank.cluster.releases import MARK, contents, digest


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    (tmp_path / "parts.json").write_text(json.dumps({"bin": {"helm": "/helm"}, "charts": {"volcano": "/volcano"}}))
    monkeypatch.setattr(release, "STATE", tmp_path)
    return Setting(tmp_path)


def of_role() -> dict[str, Any]:
    """The role's values as the lab has them."""
    source = (ROOT / "roles/volcano/templates/scheduler.conf.j2").read_text()
    template = jinja2.Environment(trim_blocks=True, autoescape=False).from_string(source)  # noqa: S701  not HTML
    configuration = template.render(volcano_queue_plugin="capacity", volcano_actions=["gangreclaim"])
    inputs = {"ignored_provisioners": "x", "scheduler_config_override": configuration}
    return {"basic": {}, "custom": volcano() | inputs}


def test_values_that_an_interrupted_run_has_left_are_not_measured_as_ours(
    built: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, kube = of_role(), cast("Any", None)
    monkeypatch.setattr(release, "run", lambda *_: json.dumps(ours))
    one = release.Volcano(kube, built)
    upstream = {"basic": {}, "custom": {"ignored_provisioners": "x"}}
    assert one.upstream == upstream
    every = [*tuning.variants(ours).values(), *tried.variants(ours).values()]
    for values in (upstream, *(one.values for one in every)):
        monkeypatch.setattr(release, "run", lambda *_, values=values: json.dumps(values))
        if values == ours:
            assert release.Volcano(kube, built).own == ours
        else:
            with pytest.raises(BenchError, match=r"got other values \(.*Fix: run playbooks/site\.yml"):
                release.Volcano(kube, built)


class Cluster:
    """The programs of the release, the scheduler among them; a removed pod takes a while to end."""

    def __init__(self) -> None:
        self.names, self.ending, self.asked = ["scheduler-0", "controllers-0"], list[str](), list[str]()
        self.marks: list[Any] = []

    def call(self, method: str, where: str, body: Any = None, query: Any = None, **_: bool) -> Any:
        if method == "PATCH":
            self.marks.append((where, body))
            return {}
        if where == release.REVISIONS:
            assert query == {"labelSelector": "owner=helm,name=volcano,status=deployed"}
            return {"items": [{"metadata": {"name": "sh.helm.release.v1.volcano.v3"}}]}
        if where == release.DEPLOYMENTS:
            return {"items": [None] * 2}
        if method == "DELETE":
            assert query == {"labelSelector": "app=volcano-scheduler"}
            self.asked.append("removed")
            self.ending = [self.names.pop(0)]
            return {}
        self.asked.append("listed")
        looks = self.asked.count("listed")
        ended = [self.pod(name) | {"metadata": {"deletionTimestamp": "now"}} for name in self.ending]
        if self.ending and looks > 1:
            self.ending, self.names = [], ["scheduler-1", "controllers-0"]
        return {"items": [*map(self.pod, self.names), *ended]}

    def pod(self, _: str) -> dict[str, Any]:
        return {"metadata": {}, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}

    def accepts(self, *_: Any) -> None:
        self.asked.append("accepts")


@pytest.mark.parametrize("name", ["upstream", "least", "clients"])
def test_a_scheduler_with_another_configuration_is_a_new_program(
    built: Setting, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is mounted from a ConfigMap, and the kubelet brings a change of that only after a minute."""
    cluster, ours = Cluster(), of_role()
    kube: Any = cluster
    monkeypatch.setattr("gangplank.wait.time.sleep", lambda _: None)
    monkeypatch.setattr(release, "run", lambda *_: json.dumps(ours))
    one = release.Volcano(kube, built)
    values = one.upstream if name == "upstream" else tried.variants(ours)[name].values
    assert one.use(values)
    again = [] if name == "clients" else ["removed", "listed", "listed"]
    assert cluster.asked == [*again, "listed", "accepts"]
    assert not one.use(values)


def test_a_release_whose_change_was_interrupted_gets_its_own_values_again(
    built: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: list[Any] = []

    def run(*words: str) -> str:
        if "upgrade" in words:
            changes.append(json.loads((built.folder / "values.json").read_text()))
            if len(changes) == 1:
                raise KeyboardInterrupt
        return json.dumps(of_role())

    kube: Any = Cluster()
    monkeypatch.setattr("gangplank.wait.time.sleep", lambda _: None)
    monkeypatch.setattr(release, "run", run)
    one = release.Volcano(kube, built)
    with pytest.raises(KeyboardInterrupt):
        one.use(one.upstream)
    assert one.use(one.own)
    assert changes == [one.upstream, one.own]


def test_a_release_with_its_own_values_again_is_the_one_that_the_playbook_knows(
    built: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the mark of the chart's content, the next run of site.yml would install the release once more."""
    cluster = Cluster()
    kube: Any = cluster
    monkeypatch.setattr("gangplank.wait.time.sleep", lambda _: None)
    monkeypatch.setattr(release, "run", lambda *_: json.dumps(of_role()))
    one = release.Volcano(kube, built)
    one.use(one.upstream)
    assert not cluster.marks
    one.use(one.own)
    mark = {"metadata": {"annotations": {MARK: digest(contents(Path(one.chart)))}}}
    assert cluster.marks == [(f"{release.REVISIONS}/sh.helm.release.v1.volcano.v3", mark)]
