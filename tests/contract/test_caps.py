"""Caps over the services on both databases: who moves them, what they change, what they never change."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.access.idempotency import Answer, IdempotentRequest
from app.access.roles import Principal, Role
from app.core.errors import BudgetExceeded, DatasetDeleted, IdempotencyKeyReused, InvalidRequest, NotFound, RoleMissing
from app.services.datasets.delete_dataset import delete_dataset
from app.services.jobs import run_job
from app.services.ledger import history
from app.services.ledger.change_cap import change_cap
from app.verifier.result_text import to_json
from app.wire.ledger import CapIn, DatasetBalance
from tests.support.crash_scene import OWNER, Scene, opened

ADMIN = Principal("key_admin", frozenset({Role.ADMIN}))
STRANGER = Principal("key_stranger", frozenset({Role.OWNER}))


@pytest.fixture
def scene(database_url: str, tmp_path: Path) -> Iterator[Scene]:
    """A pure account of ε = 3."""
    with opened(database_url, tmp_path / "home") as found:
        yield found


def _cap(
    scene: Scene, epsilon: str, *, by: Principal = OWNER, reason: str = "a reason", key: str | None = None,
    reference: str | None = None,
) -> Answer:  # fmt: skip
    wanted = CapIn.model_validate({"cap": epsilon, "reason": reason})
    body = f"{epsilon} {reason}".encode().ljust(32, b".")
    reference = reference or scene.dataset_id
    request = None if key is None else IdempotentRequest(by.key_id, f"POST /ledger/{reference}/cap", key, body)
    return change_cap(scene.installation, by, reference, wanted, request=request)


def _balance(scene: Scene) -> DatasetBalance:
    return history.show_balance(scene.installation, OWNER, scene.dataset_id, scope={})


def _charge_next(scene: Scene) -> None:
    claim = run_job.claim_next(scene.installation)
    assert claim is not None
    run_job.charge_job(scene.installation, claim)


def test_the_owner_lowers_and_an_admin_raises(scene: Scene) -> None:
    lowered = _cap(scene, "2", reason="we promised less")
    assert lowered.status == 200
    assert json.loads(lowered.body) == {
        "dataset": scene.dataset_id, "dataset_name": "census", "accountant": "pure", "unit": "epsilon",
        "cap": "2", "charged": "0", "reserved": "0", "remaining": "2",
    }  # fmt: skip
    _cap(scene, "5", by=ADMIN, reason="a second study")
    _cap(scene, "4.5", by=ADMIN, reason="an admin may lower, too")
    entries = [entry.to_json() for entry in scene.entries()[1:]]
    assert [(entry["kind"], entry["amount"], entry["actor"], entry["details"]) for entry in entries] == [
        ("cap", "2", OWNER.key_id, {"reason": "we promised less"}),
        ("cap", "5", ADMIN.key_id, {"reason": "a second study"}),
        ("cap", "4.5", ADMIN.key_id, {"reason": "an admin may lower, too"}),
    ]
    assert scene.verified().cap == 4_500_000_000


def test_nobody_else_moves_a_cap(scene: Scene) -> None:
    before = scene.export()
    with pytest.raises(RoleMissing) as refused:
        _cap(scene, "3.000000001")
    assert refused.value.needed == ["admin"]
    with pytest.raises(NotFound):
        _cap(scene, "1", by=STRANGER)
    with pytest.raises(RoleMissing):
        _cap(scene, "1", by=Principal("key_auditor", frozenset({Role.AUDITOR})))
    assert scene.export() == before


def test_what_the_owner_lowered_only_an_admin_raises_again(scene: Scene) -> None:
    """Also while guarantees still follow the higher cap, because something is held."""
    scene.submit(key="held", epsilon="1")
    _cap(scene, "2")
    for epsilon in ("2.000000001", "3"):
        with pytest.raises(RoleMissing):
            _cap(scene, epsilon)
    _cap(scene, "3", by=ADMIN)
    assert [entry.amount for entry in scene.entries() if entry.kind.value == "cap"] == [2 * 10**9, 3 * 10**9]


@pytest.mark.parametrize(
    ("epsilon", "problem"), [("3", "unchanged"), ("1e-10", "too-small"), ("1000000001", "too-large")]
)
def test_a_cap_that_is_none_is_refused(scene: Scene, epsilon: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        _cap(scene, epsilon, by=ADMIN)
    assert [(error.at, error.problem) for error in refused.value.errors] == [("/cap", problem)]
    assert len(scene.entries()) == 1


def test_below_what_is_spent_nothing_is_admitted_and_nothing_is_taken_back(scene: Scene) -> None:
    scene.submit(key="charged", epsilon="1")
    _charge_next(scene)
    scene.submit(key="held", epsilon="1.5")
    _cap(scene, "0.5")
    balance = _balance(scene)
    assert (balance.cap, balance.charged, balance.reserved, balance.remaining) == ("0.5", "1", "1.5", "0")
    assert to_json(scene.verified())["remaining"] == "0", "the verifier says the same"
    assert {cell.remaining for partition in balance.partitions for cell in partition.cells} == {"0"}
    with pytest.raises(BudgetExceeded) as refused:
        scene.submit(key="more", epsilon="0.000000001")
    assert (refused.value.remaining, refused.value.largest_that_fits) == ("0", "0")
    _charge_next(scene)
    balance = _balance(scene)
    assert (balance.charged, balance.reserved, balance.remaining) == ("2.5", "0", "0")
    assert balance.guarantee["add_remove"] == {"epsilon": "2.5", "delta": "0"}, "never less than what was spent"
    _cap(scene, "2.75", by=ADMIN)
    assert _balance(scene).guarantee["add_remove"]["epsilon"] == "2.75"
    scene.submit(key="more", epsilon="0.25")
    assert to_json(scene.verified())["remaining"] == "0"


def test_a_repeated_request_changes_a_cap_once(scene: Scene) -> None:
    first = _cap(scene, "2", key="k")
    _cap(scene, "1")
    assert _cap(scene, "2", key="k") == first, "the answer of then, not a second change"
    assert _cap(scene, "2", key="k", reference="census") == first, "by its name it is the same dataset"
    with pytest.raises(IdempotencyKeyReused):
        _cap(scene, "2", key="k", reason="another body")
    assert [entry.amount for entry in scene.entries()] == [3 * 10**9, 2 * 10**9, 10**9]


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
