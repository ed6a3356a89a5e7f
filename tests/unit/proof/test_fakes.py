"""Every fake is rejected, by the claim that names the reason; faults.md's letters are in the ids."""

from __future__ import annotations

import pytest

from gangplank.proof.verdict import prove
from tests.unit.proof.fakes import Fake, fakes

FAKES = fakes()


def test_there_are_enough_of_them() -> None:
    assert len(FAKES) >= 20
    assert {fake.name.partition(":")[0] for fake in FAKES} >= {"E1", "E2", "E3", "E4", "E5", "E6", "A13"}


@pytest.mark.parametrize("fake", FAKES, ids=lambda fake: fake.name)
def test_is_rejected_by_the_claim_that_names_the_reason(fake: Fake) -> None:
    verdict = prove(fake.records, fake.expected)
    details = {claim.name: claim.detail for claim in verdict.failed}
    assert fake.claim in details, verdict.text()
    assert fake.reason in details[fake.claim], verdict.text()
    assert not verdict.text().splitlines()[-1].startswith("PROVEN")
