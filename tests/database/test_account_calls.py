"""The service calls on an account, of a dataset and of a population, on both databases."""

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest

from app.access.grants import Principal, Role
from app.access.idempotency import Answer, IdempotentRequest
from app.core import stamps
from app.core.errors import (
    IdempotencyKeyReused,
    InvalidRequest,
    LedgerRewound,
    NotFound,
    RoleMissing,
)
from app.ledger import tables
from app.ledger.tables import Entry
from app.services.installation import Installation
from app.services.ledger import balances, evidence, history
from app.services.ledger.balances import change_cap
from app.services.ledger.evidence import ProofRequest
from app.services.ledger.heads import Heads, checkpoint_of
from app.services.pagination import PageRequest
from app.services.populations import open_population
from app.wire.ledger import AccountBalance, CapIn
from app.wire.populations import PopulationIn
from grovekeeper_forests.privacy import accountants
from grovekeeper_verifier import population_replay
from grovekeeper_verifier.dataset_replay import verify
from tests.support import people
from tests.support.crash_scene import ADMIN, OWNER, STRANGER
from tests.support.databases import on_one_database
from tests.support.evidence import head_folder

pytestmark = pytest.mark.contract

AUDITOR = Principal("key_auditor", frozenset({Role.AUDITOR}))
PURE = {"accountant": "pure", "epsilon": "3"}
ZCDP = {"accountant": "zcdp", "epsilon": "2", "delta": "1e-6"}


@dataclass(frozen=True)
class AccountCalls:
    """An account that ``OWNER`` opened."""

    installation: Installation
    kind: str
    id: str

    def cap(
        self,
        epsilon: str,
        *,
        by: Principal = OWNER,
        reason: str = "a reason",
        key: str | None = None,
        at: str = "",
    ) -> Answer:
        fields = CapIn.model_validate({"cap": epsilon, "reason": reason})
        body = f"{epsilon} {reason}".encode().ljust(32, b".")
        request = (
            None
            if key is None
            else IdempotentRequest(by.key_id, f"POST /ledger/{at}/cap", key, body)
        )
        return change_cap(self.installation, by, at or self.id, fields, request=request)

    def balance(self, by: Principal = OWNER) -> AccountBalance:
        return balances.show_balance(self.installation, by, self.id, scope={})

    def entries(self) -> list[Entry]:
        with self.installation.database.read() as session:
            return tables.entries(session, self.id, after=0, limit=99)

    def export(self, by: Principal = OWNER) -> list[bytes]:
        return list(history.export_json_lines(self.installation, by, self.id))

    def verified_cap(self) -> int:
        lines = self.export()
        return (
            verify(lines).cap
            if self.kind == "dataset"
            else population_replay.verify(lines, []).cap
        )


def _account_calls(
    installation: Installation, kind: str, budget: dict[str, str]
) -> AccountCalls:
    if kind == "dataset":
        return AccountCalls(
            installation,
            kind,
            people.declared(installation, name="patients", budget=budget)["id"],
        )
    body = PopulationIn.model_validate({"name": "patients", "budget": budget})
    return AccountCalls(
        installation,
        kind,
        json.loads(open_population(installation, OWNER, body, request=None).body)["id"],
    )


@pytest.fixture(params=["dataset", "population"])
def calls(request: pytest.FixtureRequest, installation: Installation) -> AccountCalls:
    """A pure account of ε = 3."""
    return _account_calls(installation, request.param, PURE)


READS: dict[str, Callable[[AccountCalls, Principal], Any]] = {
    "balance": lambda it, by: it.balance(by),
    "entries": lambda it, by: history.list_entries(
        it.installation, by, it.id, PageRequest()
    ),
    "export": lambda it, by: it.export(by),
    "table": lambda it, by: list(history.export_csv(it.installation, by, it.id)),
    "checkpoint": lambda it, by: evidence.show_checkpoint(
        it.installation, by, it.id, signer=Heads(it.installation).signer
    ),
    "proof": lambda it, by: evidence.show_proof(
        it.installation, by, it.id, ProofRequest(sequence=1, from_size=None, size=None)
    ),
}


@on_one_database
@pytest.mark.parametrize("read", READS)
def test_keys_that_see_an_account_read_all_of_it_and_others_get_not_found(
    calls: AccountCalls, read: str
) -> None:
    for principal in (OWNER, ADMIN, AUDITOR):
        assert READS[read](calls, principal)
    with pytest.raises(NotFound):
        READS[read](calls, STRANGER)


def test_answers_name_the_account_and_its_kind(calls: AccountCalls) -> None:
    named = {"account": calls.id, "account_name": "patients", "kind": calls.kind}
    dataset = (calls.id, "patients") if calls.kind == "dataset" else (None, None)
    lowered = json.loads(calls.cap("2").body)
    assert lowered.pop("warnings") == []
    assert lowered == named | {
        "dataset": dataset[0], "dataset_name": dataset[1], "accountant": "pure", "unit": "epsilon",
        "deleted_at": None, "cap": "2", "charged": "0", "reserved": "0", "remaining": "2", "available": "2",
        "limited_by": "cap",
    }  # fmt: skip
    balance = json.loads(calls.balance().model_dump_json())
    assert {name: balance[name] for name in lowered} == lowered
    assert (balance["largest_that_fits"], balance["exact"], balance["scope"]) == (
        "2",
        True,
        {},
    )
    listed = json.loads(
        history.list_entries(
            calls.installation, OWNER, calls.id, PageRequest()
        ).model_dump_json()
    )
    assert {name: listed[name] for name in named} == named
    assert [entry["kind"] for entry in listed["entries"]] == ["open", "cap"]


def test_the_owner_lowers_a_cap_and_an_admin_raises_it(calls: AccountCalls) -> None:
    calls.cap("2", reason="we promised less")
    for epsilon in ("2.000000001", "3"):
        with pytest.raises(RoleMissing) as refused:
            calls.cap(epsilon)
        assert refused.value.needed == ["admin"]
    with pytest.raises(NotFound):
        calls.cap("1", by=STRANGER)
    with pytest.raises(RoleMissing):
        calls.cap("1", by=AUDITOR)
    calls.cap("5", by=ADMIN, reason="a second study")
    calls.cap("4.5", by=ADMIN, reason="an admin may lower, too")
    assert [
        (entry.kind.value, entry.amount, entry.actor, entry.details)
        for entry in calls.entries()[1:]
    ] == [
        ("cap", 2 * 10**9, OWNER.key_id, {"reason": "we promised less"}),
        ("cap", 5 * 10**9, ADMIN.key_id, {"reason": "a second study"}),
        ("cap", 45 * 10**8, ADMIN.key_id, {"reason": "an admin may lower, too"}),
    ]
    assert calls.verified_cap() == 4_500_000_000


@on_one_database
@pytest.mark.parametrize(
    ("epsilon", "problem", "accepted"),
    [
        ("3", "unchanged", ()),
        ("1e-30", "too-small", ("at least 0.000000001",)),
        ("1000000001", "too-large", ("at most 1000000000",)),
    ],
)
def test_an_invalid_cap_is_refused(
    calls: AccountCalls, epsilon: str, problem: str, accepted: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        calls.cap(epsilon, by=ADMIN)
    (error,) = refused.value.errors
    assert (error.at, error.problem, error.accepted) == ("/cap", problem, accepted)
    assert len(calls.entries()) == 1


@pytest.mark.parametrize("kind", ["dataset", "population"])
def test_a_cap_with_a_delta_is_converted_as_it_was_at_first(
    installation: Installation, kind: str
) -> None:
    calls = _account_calls(installation, kind, ZCDP)
    calls.cap("1", by=ADMIN)
    unit = accountants.by_name("zcdp")
    assert calls.entries()[-1].amount == unit.cap(Fraction(1), Fraction(1, 10**6))
    guarantee = calls.balance().guarantee
    assert (
        Fraction(
            (guarantee["add_remove"] if kind == "dataset" else guarantee)["epsilon"]
        )
        <= 1
    )


def test_a_repeated_request_changes_a_cap_once(calls: AccountCalls) -> None:
    first = calls.cap("2", key="k")
    calls.cap("1")
    assert calls.cap("2", key="k") == first, "the answer of then, not a second change"
    if calls.kind == "dataset":
        assert calls.cap("2", key="k", at="patients") == first, (
            "the id and the name are the same account"
        )
    with pytest.raises(IdempotencyKeyReused):
        calls.cap("2", key="k", reason="another body")
    assert [entry.amount for entry in calls.entries()] == [3 * 10**9, 2 * 10**9, 10**9]


def test_ledger_routes_take_names_of_datasets_only(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    population = _account_calls(installation, "population", PURE)
    with pytest.raises(NotFound):
        history.list_entries(installation, ADMIN, "patients", PageRequest())
    dataset = _account_calls(installation, "dataset", PURE)
    assert (
        history.list_entries(installation, ADMIN, "patients", PageRequest()).account
        == dataset.id
    )
    assert (
        history.list_entries(installation, ADMIN, population.id, PageRequest()).account
        == population.id
    )
    # as earlier versions, which took such names
    monkeypatch.setattr(stamps, "is_id", lambda _: False)
    named_so = people.declared(installation, name=population.id)
    assert (
        history.list_entries(installation, ADMIN, population.id, PageRequest()).account
        == population.id
    )
    assert (
        history.list_entries(
            installation, ADMIN, named_so["id"], PageRequest()
        ).account_name
        == population.id
    )


def test_a_population_has_no_cells(installation: Installation) -> None:
    population = _account_calls(installation, "population", PURE)
    with pytest.raises(InvalidRequest) as refused:
        balances.show_balance(installation, OWNER, population.id, scope={"shard": [0]})
    assert [(error.at, error.problem) for error in refused.value.errors] == [
        ("/scope", "unknown-partition")
    ]


def test_checkpoints_and_proofs_are_of_the_account(calls: AccountCalls) -> None:
    calls.cap("2")
    requested = ProofRequest(sequence=2, from_size=None, size=None)
    proof = evidence.show_proof(calls.installation, OWNER, calls.id, requested)
    assert (proof.kind, proof.origin, proof.size) == (
        "inclusion",
        f"grovekeeper/ledger/{calls.id}",
        2,
    )
    signer = Heads(calls.installation).signer
    note = evidence.show_checkpoint(
        calls.installation, AUDITOR, calls.id, signer=signer
    )
    assert note.startswith(f"grovekeeper/ledger/{calls.id}\n2\n")


def test_an_account_that_became_shorter_is_noticed(calls: AccountCalls) -> None:
    heads = Heads(calls.installation)
    heads.publish()
    folder = head_folder(calls.installation)
    assert {head.account_id: head.size for head in folder.read_all()}[calls.id] == 1
    with calls.installation.database.read() as session:
        head = dataclasses.replace(checkpoint_of(session, calls.id, 1), size=2)
    folder.write(head, heads.signer.sign(head))
    with pytest.raises(LedgerRewound, match=calls.id):
        Heads(calls.installation).confirm()
