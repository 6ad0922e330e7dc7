"""Evidence that was broken shows: each line that a trainer could lose is a case here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sweep.checks import Context, Outcome, exercised
from sweep.facts import Facts, Step

Make = Callable[..., Facts]


def step(number: int) -> dict[str, Any]:
    return {
        "step": number, "loss": 3.0 - number, "global_batch_digest": f"batch {number}",
        "batch_digests": [f"{number}"], "sequence_digests": [f"{number}"],
        "gradient_digests": [f"gradient {number}"], "peak_memory_gib": 0.5,
        "counters": {"choices_fingerprint": [7.0 + number]},
        "choices_by_place": [3.0, 4.0 + number],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"gradient_digests": ["gradient 1"]}, "gradient_digests of rank 0 at step 2 is that of"),
        ({"batch_digests": ["1"]}, "batch_digests at step 2 is that of step 1: it shows nothing"),
        ({"sequence_digests": ["1"]}, "sequence_digests at step 2 is that of step 1"),
        ({"peak_memory_gib": 0.0}, "peak_memory_gib is 0.0 at step 2"),
        ({"choices_by_place": [0.0, 0.0]}, "choices_by_place adds up to 0 at step 2"),
        ({"counters": {"choices_fingerprint": [8.0]}, "choices_by_place": [3.0, 5.0]},
         "choices_fingerprint at step 2 is that of step 1"),
        # one batch is all the data there are
        ({"global_batch_digest": "batch 1", "batch_digests": ["1"], "sequence_digests": ["1"]}, ""),
    ],
)  # fmt: skip
def test_evidence_that_stands_still_or_does_not_add_up_fails(
    make_facts: Make, changes: dict[str, Any], said: str
) -> None:
    steps = [Step.model_validate(one) for one in (step(1), step(2) | changes)]
    finding = exercised.check(make_facts(steps), Context())
    assert finding.outcome is (Outcome.FAIL if said else Outcome.PASS)
    assert finding.message.startswith(f"train: {said}" if said else "")
