"""The part `tried`: one change at a time, beside the roles' values."""

from __future__ import annotations

from typing import Any

import yaml

from bench.gangs.start import Start
from bench.parts import tried
from bench.tuned import volcano

CONFIGURATION = 'actions: "enqueue, allocate, backfill"\ntiers:\n- plugins: [{name: gang}, {name: binpack}]\n'
OWN: dict[str, Any] = {
    "basic": {"image_tag_version": "v1"}, "custom": volcano() | {"scheduler_config_override": CONFIGURATION},
}  # fmt: skip
PROGRAMS = "command=nsenter -- /bin/etcd --name=lab\ncommand=nsenter -- /bin/kube-apiserver --etcd-servers=x\n"


def test_what_is_tried_is_one_change_of_the_roles_values() -> None:
    every = tried.variants(OWN)
    assert list(every) == ["ours", *tried.TRIED]
    assert every["ours"] == (OWN, None)
    for name, one in tried.TRIED.items():
        values, change = every[name]
        assert {key for key, value in values["custom"].items() if OWN["custom"].get(key) != value} == {*one.values}
        assert bool(change) == (not one.values), "one change at a time"
        assert change is None or len(change(PROGRAMS).split()) == len(PROGRAMS.split()) + 1


def test_a_configuration_that_was_tried_is_the_role_s_but_for_one_change() -> None:
    text = tried.variants(OWN)["least"].values["custom"]["scheduler_config_override"]
    assert yaml.safe_load(text) == {"actions": "enqueue, allocate", "tiers": [{"plugins": [{"name": "gang"}]}]}


def test_what_was_tried_has_the_roles_values_beside_it() -> None:
    seconds = {"ours": [10.0, 12.0, 11.0], **{name: [9.0] for name in tried.TRIED}}
    starts = {
        name: [Start(1.0, s, (), 0, {"etcd": s, "kubelet": 1.0}) for s in rows] for name, rows in seconds.items()
    }
    rows = {one.id: one for one in tried.figures(starts)}
    one = rows["tried.clients.100x10.running"]
    assert one.peer is not None
    assert (one.value, one.peer.value, one.goal) == (9.0, 11.0, None)
    assert rows["tried.clients.100x10.cpu"].value == 10.0
    assert len(rows) == 2 * len(tried.TRIED)
