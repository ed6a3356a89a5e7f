"""The part `tuning`: one default at a time as upstream's, and the programs are as before afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bench import flags
from bench.flags import with_flag, with_values
from bench.gangs.start import Start
from bench.gangs.variants import Runs
from bench.part import BenchError
from bench.parts import tuning
from bench.tuned import TUNED, volcano

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OWN: dict[str, Any] = {"basic": {"image_tag_version": "v1"}, "custom": volcano()}
PROGRAMS = """
command=nsenter -- /bin/etcd --name=lab
environment=GOGC="50"
command=nsenter -- /bin/kube-apiserver --etcd-servers=x
environment=GOGC="75"
command=nsenter -- /bin/kube-controller-manager --endpoint-updates-batch-period=500ms \
--endpointslice-updates-batch-period=500ms
"""


def test_before_a_tuned_default_all_other_values_are_the_roles() -> None:
    every = tuning.variants(OWN)
    assert list(every) == ["ours", *tuning.DEFAULTS]
    assert every["ours"] == (OWN, None)
    for name, one in tuning.DEFAULTS.items():
        values, change = every[name]
        assert values["basic"] == OWN["basic"]
        if one.home == "roles/volcano":
            assert OWN["custom"].keys() - values["custom"].keys() == one.upstream.keys()
            assert OWN["custom"] == values["custom"] | one.ours
        else:
            assert (values, one.ours.keys()) == (OWN, one.upstream.keys())
            assert change
            texts = change(PROGRAMS).replace('"', "")
            assert all(f"{key}={value}" in texts for key, value in one.upstream.items())
            assert not any(f"{key}={value}" in texts for key, value in one.ours.items())


@pytest.mark.parametrize("change", [
    lambda text: with_values(text, {"no-such-flag": 1}), lambda text: with_flag(text, "kube-proxy", "--more"),
])  # fmt: skip
def test_a_change_of_what_no_program_has_is_refused(change: Callable[[str], str]) -> None:
    with pytest.raises(BenchError, match="expected one"):
        change(PROGRAMS)


def test_all_programs_start_again_and_are_the_roles_whatever_happens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, done = tmp_path / "control-plane.conf", list[str]()
    file.write_text(PROGRAMS)
    monkeypatch.setattr(flags, "PROGRAMS", file)
    monkeypatch.setattr("lab.host.supervisor.ensure", lambda *_: done.append(file.read_text()))
    with pytest.raises(BenchError, match="expected one"), flags.own_programs() as own:
        flags.start(with_values(own, {"no-such-flag": 1}))
    with flags.own_programs() as own:
        flags.start(other := with_values(own, {"GOGC": 100}))
    assert done == ["", PROGRAMS, "", other, "", PROGRAMS]
    assert other.count('GOGC="100"') == 2


def test_a_tuned_default_has_its_before_and_after() -> None:
    seconds = {"ours": [10.0, 12.0, 11.0], **{name: [20.0, 24.0, 22.0] for name in tuning.DEFAULTS}}
    starts = {
        name: [Start(1.0, s, (), 0, {"kube-controller-manager": s, "kubelet": 1.0}) for s in rows]
        for name, rows in seconds.items()
    }
    rest = {name: [10 * s for s in rows] for name, rows in seconds.items()}
    rows = {one.id: one for one in tuning.figures(Runs(dict.fromkeys(tuning.SHAPES, starts), rest))}
    one = rows["tuning.requests.100x10.running"]
    assert one.peer is not None
    assert (one.value, one.peer.value, one.goal, one.met) == (11.0, 22.0, 20.0, True)
    assert rows["tuning.heap.1x1000.running"].goal is None, "this is not what it was tuned for"
    assert rows["tuning.requests.1x1000.cpu"].value == 12.0
    assert (rows["tuning.batches.1x1000.manager"].value, rows["tuning.batches.1x1000.manager"].goal) == (11.0, 20.0)
    assert (rows["tuning.heap.rest.memory"].value, rows["tuning.heap.rest.memory"].goal) == (110.0, 200.0)
    assert {key for one in TUNED.values() for key in one.figures if key.startswith("tuning.")} <= rows.keys()


def test_every_value_of_the_role_that_is_tuned_for_speed_has_a_before() -> None:
    """The others are there for what Volcano does, not for how fast."""
    others = {"ignored_provisioners", "scheduler_config_override", "default_tolerations", "controller_log_level"}
    tuned = {name for one in TUNED.values() if one.home == "roles/volcano" for name in one.upstream}
    assert volcano().keys() - others == tuned
    for one in TUNED.values():
        assert {name for name, value in one.ours.items() if value == one.upstream[name]} == set()
