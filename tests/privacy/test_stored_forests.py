"""Forests of every algorithm, account and way to grow, with fixed draws, are bit by bit
those of the stored digests.

:mod:`tests.database.test_golden` compares what whole jobs release, at the parameters of
a default; here every choice of a parameter grows, and another value of every number. A difference is a change of what
leaves: where that is meant, ``python -m tests.privacy.stored_forests`` writes the
digests again.
"""

import json
from typing import Any

import pytest

from tests.privacy import stored_forests

CASES = list(stored_forests.cases())
NAMES = [stored_forests.name_of(*case) for case in CASES]
STORED = json.loads(stored_forests.FILE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("slug", "accountant", "parameters"), CASES, ids=NAMES)
def test_a_forest_has_the_stored_bits(
    slug: str, accountant: str, parameters: dict[str, Any]
) -> None:
    case = slug, accountant, parameters
    stored = STORED[stored_forests.name_of(*case)]
    assert set(stored_forests.digests(*case)) == {stored}


def test_every_case_is_stored_once() -> None:
    assert list(STORED) == NAMES
