"""Whatever happens to a cluster under a training, the training ends with the exact weights, or says the one cause."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from tests.cluster.faults import COMPONENTS, END_S, FAULTS, Outcome, job, prepared, undergo
from tests.support.sweeps import FULL, sweeping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.conftest import Lab

LONG = sweeping("long-faults")
ALL = FULL or LONG
SAMPLE = ("kubelet killed", "API server killed")  # for two nodes will do, and the control plane's may have jobs
NAMES = [name for name, one in FAULTS.items() if one.long == LONG] if ALL else SAMPLE
CASES = [(name, backend) for name in NAMES for backend in FAULTS[name].backends]


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The lab, with three nodes for all faults, and what they need."""
    lab: Lab = request.getfixturevalue("three_nodes" if ALL else "lab")
    lab.playbook(*(("playbooks/lab.yml", "playbooks/site.yml", *COMPONENTS) if ALL else ("playbooks/site.yml",)))
    with prepared(lab, free_node=ALL):
        yield lab


@pytest.fixture(scope="module")
def undisturbed(site: Lab) -> str:
    """The final weights of a job that nothing happens to."""
    calm = job(site, "calm", "volcano")
    calm.submit()
    assert calm.end(END_S) == "Completed", calm.log()[-2000:]
    return calm.weights()


@pytest.fixture(scope="module")
def outcome(site: Lab) -> Callable[[str], dict[str, Outcome]]:
    """The outcome of a fault by back-end: it is made once, under a job of each."""
    return functools.cache(lambda name: undergo(site, FAULTS[name]))


@pytest.mark.parametrize(("name", "backend"), CASES, ids=[", ".join(case) for case in CASES])
def test_d_ends_with_the_exact_weights(
    outcome: Callable[[str], dict[str, Outcome]], undisturbed: str, name: str, backend: str
) -> None:
    one = outcome(name)[backend]
    assert one.end is not None, one.lines
    assert one.end.succeeded, one.lines
    assert one.job.weights() == undisturbed
    assert one.verdict(FAULTS[name].unproven) == ""
