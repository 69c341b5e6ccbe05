"""What a population's own entries say, on both databases, held to the verifier, with and without members' exports."""

import dataclasses
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from app.access.idempotency import IdempotentRequest
from app.access.roles import Principal, Role
from app.core import clock, limits
from app.core.errors import (
    BudgetExceeded,
    IdempotencyKeyReused,
    InvalidRequest,
    LedgerRewound,
    NotFound,
    PopulationMismatch,
    RoleMissing,
)
from app.ledger import caps, external, loads, populations
from app.ledger import service as ledger
from app.ledger.heads import HeadFolder
from app.ledger.populations import NewPopulation
from app.privacy import accountants
from app.privacy.composition import Partitions
from app.services import audit, evidence
from app.services.change_population_cap import change_population_cap
from app.services.evidence import AskedProof
from app.services.heads import Heads, checkpoint_of
from app.services.installation import Installation
from app.services.pages import PageRequest
from app.services.populations import list_populations, show_population
from app.services.readable_ledgers import of_population
from app.verifier.members import MemberLedger
from app.verifier.sums import verify
from app.wire.ledger import CapIn
from tests.support.crash_scene import EVENT, OWNER, open_installation
from tests.support.evidence import export, verified

SHARDS = Partitions.from_json([{"name": "shard", "kind": "hash", "cells": 3}])
PURE = ledger.NewAccount(
    id="", name="census", accountant="pure", adjacency="add_remove", cap=100, delta=None,
    privacy_unit={"column": None, "max_rows": 1}, partitions=SHARDS,
)  # fmt: skip
ZCDP = dataclasses.replace(PURE, accountant="zcdp", delta="0.000001")
ADMIN = Principal("key_admin", frozenset({Role.ADMIN}))
AUDITOR = Principal("key_auditor", frozenset({Role.AUDITOR}))
STRANGER = Principal("key_stranger", frozenset({Role.OWNER}))


@pytest.fixture
def installation(database_url: str, tmp_path: Path) -> Iterator[Installation]:
    found = open_installation(database_url, tmp_path / "home")
    yield found
    found.close()


def opened(session: Session, *members: str, like: ledger.NewAccount = PURE, cap: int = 100) -> None:
    new = NewPopulation("pop_a", "patients", like.accountant, cap, like.delta, OWNER.key_id)
    populations.open_population(session, new, at=clock.now())
    for name in members:
        account(session, name, like)
        join(session, name)


def account(session: Session, name: str, like: ledger.NewAccount = PURE, **changes: Any) -> None:
    ledger.open_account(session, dataclasses.replace(like, id=name, **changes), actor=OWNER.key_id)


def join(session: Session, name: str) -> None:
    populations.join(session, "pop_a", name, actor=OWNER.key_id, at=clock.now())


def reserve(session: Session, name: str, amount: int, job: str, *shards: int) -> str:
    scope = {"shard": shards} if shards else {}
    return ledger.reserve(session, ledger.NewReservation(name, amount, scope, EVENT, job), actor="key_a")


def said(session: Session, name: str = "pop_a") -> list[tuple[str, int]]:
    return [(entry.kind.value, entry.amount) for entry in ledger.entries(session, name, after=0, limit=1_000)]


def test_entries_say_what_happened_and_to_which_entry_of_which_member(installation: Installation) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1")
        held = reserve(session, "ds_1", 60, "jb_1", 0)
        reserve(session, "ds_1", 30, "jb_2", 1)
        ledger.void(session, held, actor="key_b")
        entries = ledger.entries(session, "pop_a", after=0, limit=9)
        (own, *_, voided) = ledger.entries(session, "ds_1", after=0, limit=9)
    objects = [entry.to_json() for entry in entries]
    assert [(each["kind"], each["amount"], each["job_id"], each["actor"]) for each in objects] == [
        ("open", "0.0000001", None, OWNER.key_id),
        ("join", "0", None, OWNER.key_id),
        ("load", "0.00000006", "jb_1", "key_a"),
        ("load", "0.00000006", "jb_2", "key_a"),
        ("load", "0.00000003", "jb_1", "key_b"),
    ]
    assert all((each["scope"], each["event"]) == ({}, None) for each in objects)
    assert objects[0]["details"] == {"population": "pop_a", "accountant": "pure", "delta": None}
    assert objects[1]["details"] == {
        "member": {
            "dataset": "ds_1", "sequence": 1, "hash": own.hash, "adjacency": "add_remove", "unit_column": None,
            "highest_cap": "0.0000001",
        }
    }  # fmt: skip
    assert objects[4]["details"] == {"member": {"dataset": "ds_1", "sequence": 4, "hash": voided.hash}}


def test_every_end_but_a_charge_is_followed_by_a_load(installation: Installation) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1", "ds_2")
        first, second = reserve(session, "ds_1", 10, "jb_1"), reserve(session, "ds_2", 20, "jb_2")
        third = reserve(session, "ds_1", 30, "jb_3")
        ledger.charge(session, first, actor="worker")
        assert said(session)[-1] == ("load", 40)
        ledger.expire(session, second, actor="sweeper")
        ledger.void(session, third, actor="key_a")
        one = ledger.NewReservation("ds_2", 7, {}, None, None, details={"attested_by": "key_a"})
        external.charge(session, one, actor="key_a")
        assert said(session) == [
            ("open", 100), ("join", 0), ("join", 0), ("load", 10), ("load", 20), ("load", 40), ("load", 0),
            ("load", 10), ("load", 7),
        ]  # fmt: skip
        assert verify(export(session, "pop_a"), []).together == 17


def test_a_member_writes_nothing_before_its_populations_newest_entry_whatever_its_clock_says(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1", "ds_2")
        held = reserve(session, "ds_1", 5, "jb_1")
        ahead, behind = clock.now() + timedelta(seconds=5), clock.now()
        monkeypatch.setattr(clock, "now", lambda: ahead)
        reserve(session, "ds_2", 10, "jb_2")
        early = list(export(session, "pop_a"))
        monkeypatch.setattr(clock, "now", lambda: behind)  # of another machine, on which the next transaction runs
        reserve(session, "ds_1", 20, "jb_3")
        ledger.void(session, held, actor="key_b")
        members = [MemberLedger(list(export(session, name)), (), file=name) for name in ("ds_1", "ds_2")]
    assert verify(early, members).compared["ds_1"].n_later == 2, "nothing was kept quiet"


def test_a_job_on_two_members_is_two_loads_and_its_end_two_more(installation: Installation) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1", "ds_2")
        wanted = [ledger.NewReservation(each, 20, {}, EVENT, "jb_1") for each in ("ds_2", "ds_1")]
        ledger.reserve_all(session, wanted, actor="key_a")
        ledger.void_jobs(session, ["jb_1"], actor="key_a")
        loads_of = [
            (entry.details["member"]["dataset"], entry.amount)
            for entry in ledger.entries(session, "pop_a", after=3, limit=9)
            if entry.details is not None
        ]
        assert loads_of == [("ds_1", 20), ("ds_2", 20), ("ds_1", 0), ("ds_2", 0)]
        assert verified(session, "pop_a").together == 0


def test_a_refusal_and_a_rollback_leave_no_entry(installation: Installation) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1", "ds_2")
        reserve(session, "ds_1", 60, "jb_1")
    with pytest.raises(BudgetExceeded), installation.database.write() as session:
        reserve(session, "ds_2", 41, "jb_2")
    with pytest.raises(RuntimeError), installation.database.write() as session:
        reserve(session, "ds_2", 40, "jb_3")
        raise RuntimeError
    with installation.database.read() as session:
        assert said(session)[3:] == [("load", 60)]
        assert said(session, "ds_2") == [("open", 100)]
        assert verified(session, "pop_a").together == 60


def test_datasets_outside_have_no_part_in_it(installation: Installation) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1")
        account(session, "ds_2")
        ledger.void(session, reserve(session, "ds_2", 90, "jb_1"), actor="key_a")
        assert said(session) == [("open", 100), ("join", 0)]


def test_the_chain_verifies_with_cells_late_joins_and_caps_that_move(installation: Installation) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1")
        held = [reserve(session, "ds_1", 40, f"jb_{shard}", shard) for shard in range(3)]
        ledger.charge(session, held[0], actor="worker")
        account(session, "ds_2")
        reserve(session, "ds_2", 90, "jb_late", 0)
        caps.change(session, "pop_a", 70, reason="less", actor=OWNER.key_id)
        join(session, "ds_2")
        assert verified(session, "pop_a").printable == 130
        with pytest.raises(BudgetExceeded):
            reserve(session, "ds_1", 1, "jb_no", 1)
        caps.change(session, "pop_a", 170, reason="more", actor=ADMIN.key_id)
        reserve(session, "ds_1", 40, "jb_4", 1)
        ledger.void(session, held[1], actor="key_a")
        found = verified(session, "pop_a")
    assert found.kinds == {"open": 1, "join": 2, "load": 5, "cap": 2}
    assert (found.together, found.printable) == (130, 170)
    assert all((each.n_bounds, each.n_too_complex) == (0, 0) for each in found.compared.values())


def test_with_a_delta_the_highest_cap_counts_since_something_is_held(installation: Installation) -> None:
    with installation.database.write() as session:
        opened(session, "ds_1", like=ZCDP)
        caps.change(session, "pop_a", 300, reason="unused", actor=ADMIN.key_id)
        caps.change(session, "pop_a", 90, reason="unused", actor=ADMIN.key_id)
        assert verified(session, "pop_a").printable == 90
        held = reserve(session, "ds_1", 10, "jb_1")
        caps.change(session, "pop_a", 50, reason="used", actor=OWNER.key_id)
        assert verified(session, "pop_a").printable == 90
        account(session, "ds_2", ZCDP, cap=70)
        late = reserve(session, "ds_2", 5, "jb_2")
        join(session, "ds_2")
        assert verified(session, "pop_a").printable == 160
        caps.change(session, "pop_a", 200, reason="used", actor=ADMIN.key_id)
        assert verified(session, "pop_a").printable == 200
        for reservation in (held, late):
            ledger.void(session, reservation, actor="key_a")
        caps.change(session, "pop_a", 20, reason="nothing was ever charged", actor=OWNER.key_id)
        assert verified(session, "pop_a").printable == 20


def test_caps_that_cannot_be_added_up_in_64_bits_do_not_join(installation: Installation) -> None:
    huge = dataclasses.replace(ZCDP, cap=2**62)
    with installation.database.write() as session:
        opened(session, like=huge, cap=2**62)
        account(session, "ds_1", huge)
        reserve(session, "ds_1", 1, "jb_1")
        with pytest.raises(PopulationMismatch) as refused:
            join(session, "ds_1")
        assert refused.value.differs == ("highest_cap",)
        assert said(session) == [("open", 2**62)]


def test_a_bound_is_never_more_than_what_follows_from_the_load_before(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the maximum is too much work; the sum of the chain stays within the cap that admitted it."""
    cut = Partitions.from_json([{"name": name, "kind": "hash", "cells": 4} for name in ("a", "b", "c")])
    with installation.database.write() as session:
        opened(session)
        for name in ("ds_1", "ds_2"):
            account(session, name, partitions=cut)
            join(session, name)
        monkeypatch.setattr(limits, "MAX_COMPOSITION_WORK", 0)
        n_admitted = 0
        for number in range(60):
            box = {name: (number % 4, (number + at) % 4) for at, name in enumerate(("a", "b", "c"), start=1)}
            scope = {name: tuple(sorted(cells)) for name, cells in box.items()}
            with suppress(BudgetExceeded):
                new = ledger.NewReservation(f"ds_{number % 2 + 1}", 9, scope, EVENT, f"jb_{number}")
                ledger.reserve(session, new, actor="key_a")
                n_admitted += 1
        assert not ledger.balance(session, "ds_1").is_exact
        assert 2 < n_admitted < 60
        assert verified(session, "pop_a").together <= 100


def test_boxes_that_do_not_meet_are_one_load_even_where_they_are_not_composed(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bound over all joint cells takes the two for one that meet, and would be over the cap that admitted them."""
    cut = Partitions.from_json([{"name": name, "kind": "hash", "cells": 3} for name in ("a", "b")])
    monkeypatch.setattr(limits, "MAX_COMPOSITION_WORK", 0)
    with installation.database.write() as session:
        opened(session, cap=9)
        account(session, "ds_1", partitions=cut)
        join(session, "ds_1")
        for cell in (0, 1):
            new = ledger.NewReservation("ds_1", 5, {"a": (0,), "b": (cell,)}, EVENT, f"jb_{cell}")
            ledger.reserve(session, new, actor="key_a")
        balance = ledger.balance(session, "ds_1")
        assert (balance.charged + balance.reserved, balance.is_exact) == (10, False)
        assert verified(session, "pop_a").together == 5
        new = ledger.NewReservation("ds_1", 1, {"a": (1,), "b": (2,)}, EVENT, "jb_2")
        ledger.void(session, ledger.reserve(session, new, actor="key_a"), actor="key_a")
        assert said(session)[2:] == [("load", 5)] * 4, "what is given back raises no load"
        verified(session, "pop_a")


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
        assert loads.of_population(session, "pop_a").account.cap == unit.cap(Fraction(1), Fraction(1, 10**6))


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
        found = audit.list_entries(three, principal, "patients", page, readable=of_population)
        assert [entry.kind for entry in found.entries] == ["open"]
    with pytest.raises(NotFound):
        audit.list_entries(three, STRANGER, "patients", page, readable=of_population)
    with pytest.raises(NotFound):
        audit.export_json_lines(three, STRANGER, "patients", readable=of_population)
    for name in ("patients", "pop_a"):
        with pytest.raises(NotFound):
            audit.list_entries(three, ADMIN, name, page)


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
