"""Whatever happens to a cluster under a training, the training ends with the exact weights, or says the one cause."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from tests.cluster.faults import BACKENDS, END_S, FAULTS, Outcome, job, prepared, undergo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.conftest import Lab

CASES = [(fault, backend) for fault in FAULTS.values() for backend in fault.backends]


@pytest.fixture(scope="module")
def site(three_nodes: Lab) -> Iterator[Lab]:
    three_nodes.playbook("playbooks/site.yml")
    with prepared(three_nodes):
        yield three_nodes


@pytest.fixture(scope="module")
def undisturbed(site: Lab) -> str:
    """The final weights of a job that nothing happens to."""
    calm = job(site, "calm", "volcano")
    calm.submit()
    assert calm.end(END_S) == "Completed"
    return calm.weights()


@pytest.fixture(scope="module")
def outcome(site: Lab) -> Callable[[str], dict[str, Outcome]]:
    """The outcome of a fault by back-end: it is made once, under a job of each."""
    return functools.cache(lambda name: undergo(site, FAULTS[name], BACKENDS))


@pytest.mark.parametrize(("name", "backend"), [(fault.name, backend) for fault, backend in CASES],
                         ids=[f"{fault.name}, {backend}" for fault, backend in CASES])  # fmt: skip
def test_ends_with_the_exact_weights(
    outcome: Callable[[str], dict[str, Outcome]], undisturbed: str, name: str, backend: str
) -> None:
    one = outcome(name)[backend]
    assert one.phase in ("Completed", "Complete", "SuccessCriteriaMet"), one.job.log()[-2000:]
    assert one.job.weights() == undisturbed
    proof = one.job.command("proof")
    assert (proof.returncode, "PROVEN" in proof.stdout) == (0, True), proof.stdout + proof.stderr
