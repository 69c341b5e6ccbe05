"""Calls about a population, on both databases: caps, who sees its history, checkpoints, proofs and lists."""

import dataclasses
import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from app.access.idempotency import IdempotentRequest
from app.access.roles import Principal, Role
from app.core import clock
from app.core.errors import (
    BudgetExceeded,
    IdempotencyKeyReused,
    InvalidRequest,
    LedgerRewound,
    NotFound,
    RoleMissing,
)
from app.ledger import caps, population_totals, populations
from app.ledger import service as ledger
from app.ledger.heads import HeadFolder
from app.ledger.populations import NewPopulation
from app.privacy import accountants
from app.services.installation import Installation
from app.services.ledger import evidence, history
from app.services.ledger.change_population_cap import change_population_cap
from app.services.ledger.evidence import AskedProof
from app.services.ledger.publish_heads import Heads, checkpoint_of
from app.services.ledger.readable_accounts import of_population
from app.services.pages import PageRequest
from app.services.populations import list_populations, show_population
from app.wire.ledger import CapIn
from tests.support.crash_scene import OWNER, open_installation
from tests.support.evidence import verified
from tests.support.population_accounts import ADMIN, PURE, ZCDP, account, join, opened, reserve, said

AUDITOR = Principal("key_auditor", frozenset({Role.AUDITOR}))
STRANGER = Principal("key_stranger", frozenset({Role.OWNER}))


@pytest.fixture
def installation(database_url: str, tmp_path: Path) -> Iterator[Installation]:
    found = open_installation(database_url, tmp_path / "home")
    yield found
    found.close()


def _cap(
    installation: Installation, epsilon: str, *, by: Principal = OWNER, key: str | None = None, **more: str
) -> Any:
    wanted = CapIn.model_validate({"cap": epsilon, "reason": more.get("reason", "a test")})
    digest = json.dumps(more).encode().ljust(32, b".")[:32]
    request = None if key is None else IdempotentRequest(by.key_id, "POST", key, digest)
    answer = change_population_cap(installation, by, more.get("reference", "pop_a"), wanted, request=request)
    return dict(json.loads(answer.body))


@pytest.fixture
def three(installation: Installation) -> Installation:
    """A population of ε = 3 with two members of ε = 3."""
    like = dataclasses.replace(PURE, cap=3 * 10**9)
    with installation.database.write() as session:
        opened(session, cap=3 * 10**9)
        for name in ("ds_1", "ds_2"):
            account(session, name, like)
    return installation


def test_the_declarer_lowers_and_an_admin_raises(three: Installation) -> None:
    shown = _cap(three, "2", reason="we promised less")
    assert (shown["cap"], shown["remaining"], shown["guarantee"]["epsilon"]) == ("2", "2", "2")
    with pytest.raises(RoleMissing) as refused:
        _cap(three, "2.5")
    assert refused.value.needed == ["admin"]
    with pytest.raises(NotFound):
        _cap(three, "1", by=STRANGER)
    with pytest.raises(RoleMissing):
        _cap(three, "1", by=AUDITOR)
    assert _cap(three, "2.5", by=ADMIN, reference="patients")["cap"] == "2.5"
    with three.database.read() as session:
        entries = ledger.entries(session, "pop_a", after=1, limit=9)
    assert [(entry.kind.value, entry.amount, entry.actor, entry.details) for entry in entries] == [
        ("cap", 2 * 10**9, OWNER.key_id, {"reason": "we promised less"}),
        ("cap", 25 * 10**8, ADMIN.key_id, {"reason": "a test"}),
    ]


@pytest.mark.parametrize(
    ("epsilon", "problem"), [("3", "unchanged"), ("1e-10", "too-small"), ("1000000001", "too-large")]
)
def test_a_cap_that_is_none_is_refused(three: Installation, epsilon: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        _cap(three, epsilon, by=ADMIN)
    assert [(error.at, error.problem) for error in refused.value.errors] == [("/cap", problem)]


def test_a_cap_with_a_delta_is_converted_as_it_was_at_first(installation: Installation) -> None:
    unit = accountants.by_name("zcdp")
    with installation.database.write() as session:
        opened(session, like=ZCDP, cap=unit.cap(Fraction(2), Fraction(1, 10**6)))
    shown = _cap(installation, "1", by=ADMIN)
    assert Fraction(shown["guarantee"]["epsilon"]) <= 1
    with installation.database.read() as session:
        assert population_totals.of_population(session, "pop_a").cap == unit.cap(Fraction(1), Fraction(1, 10**6))


def test_a_repeated_request_changes_a_cap_once(three: Installation) -> None:
    first = _cap(three, "2", key="k")
    _cap(three, "1")
    assert _cap(three, "2", key="k") == first
    with pytest.raises(IdempotencyKeyReused):
        _cap(three, "2", key="k", reason="another body")
    with three.database.read() as session:
        assert said(session)[1:] == [("cap", 2 * 10**9), ("cap", 10**9)]


def test_a_lowered_cap_admits_nothing_over_it_and_takes_nothing_back(three: Installation) -> None:
    with three.database.write() as session:
        for name in ("ds_1", "ds_2"):
            join(session, name)
        held = reserve(session, "ds_1", 2 * 10**9, "jb_1")
    with three.database.write() as session:
        caps.change(session, "pop_a", 10**9, reason="a test", actor=OWNER.key_id)
    with three.database.write() as session:
        assert ledger.balance(session, "ds_2").room == 0
        with pytest.raises(BudgetExceeded) as refused:
            reserve(session, "ds_2", 1, "jb_2")
        assert (refused.value.cap, refused.value.population) == ("1", "patients")
        ledger.charge(session, held, actor="worker")
        assert verified(session, "pop_a").printable == 2 * 10**9


def test_who_sees_a_population_reads_its_history(three: Installation) -> None:
    page = PageRequest()
    for principal in (OWNER, ADMIN, AUDITOR):
        found = history.list_entries(three, principal, "patients", page, readable=of_population)
        assert [entry.kind for entry in found.entries] == ["open"]
    with pytest.raises(NotFound):
        history.list_entries(three, STRANGER, "patients", page, readable=of_population)
    with pytest.raises(NotFound):
        history.export_json_lines(three, STRANGER, "patients", readable=of_population)
    for name in ("patients", "pop_a"):
        with pytest.raises(NotFound):
            history.list_entries(three, ADMIN, name, page)


def test_checkpoints_and_proofs_are_those_of_any_log(three: Installation) -> None:
    with three.database.write() as session:
        join(session, "ds_1")
    asked = AskedProof(sequence=2, from_size=None, size=None)
    proof = evidence.prove(three, OWNER, "patients", asked, readable=of_population)
    assert (proof.kind, proof.origin, proof.size) == ("inclusion", "grovekeeper/ledger/pop_a", 2)
    note = evidence.show_checkpoint(three, AUDITOR, "patients", signer=Heads(three).signer, readable=of_population)
    assert note.startswith("grovekeeper/ledger/pop_a\n2\n")


def test_a_shorter_population_is_noticed_like_a_shorter_dataset(three: Installation) -> None:
    heads = Heads(three)
    heads.publish()
    folder = HeadFolder(three.home / "checkpoints")
    assert {head.account_id: head.size for head in folder.read_all()} == {"pop_a": 1, "ds_1": 1, "ds_2": 1}
    with three.database.read() as session:
        head = dataclasses.replace(checkpoint_of(session, "pop_a", 1), size=2)
    folder.write(head, heads.signer.sign(head))
    with pytest.raises(LedgerRewound, match="pop_a"):
        Heads(three).confirm()


def test_lists_take_cursors_of_theirs_and_no_others(three: Installation) -> None:
    with three.database.write() as session:
        other = NewPopulation("pop_b", "others", "pure", 5, None, STRANGER.key_id)
        populations.open_population(session, other, at=clock.now())
    found = list_populations(three, ADMIN, PageRequest(1))
    assert ([each.id for each in found.populations], found.next) == (["pop_a"], "pop_a")
    found = list_populations(three, ADMIN, PageRequest(1, found.next))
    assert ([each.id for each in found.populations], found.next) == (["pop_b"], None)
    for principal, cursor in ((ADMIN, "junk"), (ADMIN, "patients"), (OWNER, "pop_b")):
        with pytest.raises(InvalidRequest):
            list_populations(three, principal, PageRequest(1, cursor))
    assert show_population(three, ADMIN, "others").cap == "0.000000005"
