"""Caps of datasets on both databases: which numbers a lower cap changes, and which
numbers it never changes.
"""

import pytest

from app.access.grants import Principal
from app.core.errors import BudgetExceeded, DatasetDeleted, RoleMissing
from app.services.datasets.erase import delete_dataset
from app.services.execution import charge
from app.services.ledger import balances
from app.services.ledger.balances import change_cap
from app.wire.ledger import AccountBalance, CapIn, ChangedCap
from grovekeeper_verifier.result_text import to_json
from tests.support.crash_scene import ADMIN, OWNER, Scene
from tests.support.job_kinds import claimed

pytestmark = pytest.mark.contract


def _cap(scene: Scene, epsilon: str, *, by: Principal = OWNER) -> list[str]:
    """Changes the cap and returns the warnings."""
    body = CapIn.model_validate({"cap": epsilon, "reason": "a reason"})
    answer = change_cap(scene.installation, by, scene.dataset_id, body, request=None)
    return ChangedCap.model_validate_json(answer.body).warnings


def _balance(scene: Scene) -> AccountBalance:
    return balances.show_balance(scene.installation, OWNER, scene.dataset_id, scope={})


def _charge_next(scene: Scene) -> None:
    claim = claimed(scene.installation)
    charge.charge_claimed(scene.installation, claim)


def test_only_an_admin_raises_a_cap_that_the_owner_lowered(scene: Scene) -> None:
    """The rule also holds while an open reservation keeps the guarantee at the higher
    cap.
    """
    scene.submit(key="held", epsilon="1")
    _cap(scene, "2")
    for epsilon in ("2.000000001", "3"):
        with pytest.raises(RoleMissing):
            _cap(scene, epsilon)
    _cap(scene, "3", by=ADMIN)
    assert [entry.amount for entry in scene.entries() if entry.kind.value == "cap"] == [
        2 * 10**9,
        3 * 10**9,
    ]


def test_a_cap_above_ten_is_set_with_a_warning(scene: Scene) -> None:
    assert _cap(scene, "10", by=ADMIN) == []
    (warning,) = _cap(scene, "10.1", by=ADMIN)
    assert "ε is above 10" in warning


def test_below_what_is_spent_nothing_is_admitted_and_nothing_is_taken_back(
    scene: Scene,
) -> None:
    scene.submit(key="charged", epsilon="1")
    _charge_next(scene)
    scene.submit(key="held", epsilon="1.5")
    _cap(scene, "0.5")
    balance = _balance(scene)
    assert (balance.cap, balance.charged, balance.reserved, balance.remaining) == (
        "0.5",
        "1",
        "1.5",
        "0",
    )
    assert to_json(scene.verified())["remaining"] == "0", "the verifier says the same"
    assert {
        cell.remaining for partition in balance.partitions for cell in partition.cells
    } == {"0"}
    with pytest.raises(BudgetExceeded) as refused:
        scene.submit(key="more", epsilon="0.000000001")
    assert (refused.value.remaining, refused.value.largest_that_fits) == ("0", "0")
    _charge_next(scene)
    balance = _balance(scene)
    assert (balance.charged, balance.reserved, balance.remaining) == ("2.5", "0", "0")
    assert balance.guarantee["add_remove"] == {"epsilon": "2.5", "delta": "0"}, (
        "never less than what was spent"
    )
    _cap(scene, "2.75", by=ADMIN)
    assert _balance(scene).guarantee["add_remove"]["epsilon"] == "2.75"
    scene.submit(key="more", epsilon="0.25")
    assert to_json(scene.verified())["remaining"] == "0"


def test_an_erased_dataset_keeps_its_cap(scene: Scene) -> None:
    delete_dataset(scene.installation, OWNER, scene.dataset_id)
    for epsilon in ("1", "9"):
        with pytest.raises(DatasetDeleted):
            _cap(scene, epsilon, by=ADMIN)
    assert len(scene.entries()) == 1


def test_a_reason_is_a_sentence_that_a_terminal_would_only_print() -> None:
    for reason in ("x", "x" * 500, "d’après § 4 – „neu“ 中文"):
        assert CapIn.model_validate({"cap": "1", "reason": reason}).reason == reason
    for reason in (
        "",
        " ",
        "x" * 501,
        "a\nb",
        "\x1b[31m",
        "a\x00",
        "\x7f",
        "\x9b1m",
        "a\u2028b",
        "0\u202e1",
        "\u2066a",
        "\ud800",
    ):
        with pytest.raises(ValueError, match="reason"):
            CapIn.model_validate({"cap": "1", "reason": reason})
