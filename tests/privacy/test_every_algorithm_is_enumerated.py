"""Every registered algorithm has an enumeration of its exact output law."""

from typing import Any

from grovekeeper_forests import catalogue
from tests.privacy import (
    test_bms_rf,
    test_exact_loss,
    test_label_accounts,
    test_nbrt_law,
    test_rpf_exact_loss,
    test_sspe1,
)

WITH_A_FILE_OF_THEIR_OWN: dict[str, Any] = {
    "rpf": test_rpf_exact_loss,
    "nbrt": test_nbrt_law,
    "bms-rf": test_bms_rf,
    "sspe-1": test_sspe1,
}


def test_every_registered_algorithm_has_its_exact_loss_enumerated() -> None:
    cases = [*test_exact_loss.CASES, *test_label_accounts.CASES]
    enumerated = {str(case.values[0]) for case in cases} | set(WITH_A_FILE_OF_THEIR_OWN)
    assert enumerated == set(catalogue.BY_SLUG)
