"""The canonical form of entries and its hash, against vectors that were computed
independently.
"""

import hashlib
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ledger.tables import FIRST_PREVIOUS_HASH, Entry, EntryKind

OPEN = Entry(
    sequence=1,
    kind=EntryKind.OPEN,
    amount=3_000_000_000,
    scope={},
    event=None,
    job_id=None,
    actor="key_owner",
    at="2026-11-20T09:30:00.000000Z",
    previous_hash=FIRST_PREVIOUS_HASH,
    places=9,
)
OPEN_TEXT = (
    '{"actor":"key_owner","amount":"3","at":"2026-11-20T09:30:00.000000Z","event":null,"job_id":null,"kind":"open",'
    '"previous_hash":"0000000000000000000000000000000000000000000000000000000000000000","scope":{},"sequence":1}'
)
OPEN_HASH = "91535e58a8807b31c6b1f3709abb744678ca17c81f2df49a4ed07655fb045f00"
RESERVE = Entry(
    sequence=2,
    kind=EntryKind.RESERVE,
    amount=700_000_001,
    scope={"shard": [0, 3]},
    event={"type": "sequential/1", "parts": []},
    job_id="jb_1",
    actor="key_analyst",
    at="2026-11-20T09:30:01.000000Z",
    previous_hash=OPEN_HASH,
    places=9,
)
RESERVE_HASH = "04aaa21d93d19e79d47e87f08fe8b0812c22f7aa09be786619c13d9a78fb8b3d"


def test_the_hash_is_that_of_the_canonical_text_without_the_hash() -> None:
    assert hashlib.sha256(OPEN_TEXT.encode()).hexdigest() == OPEN_HASH
    assert OPEN.sealed().hash == OPEN_HASH
    assert RESERVE.sealed().hash == RESERVE_HASH


def test_sealing_a_sealed_entry_changes_nothing() -> None:
    assert OPEN.sealed().sealed() == OPEN.sealed()
    assert OPEN.hash == "", "an entry is frozen; sealing gives another one"


def test_the_public_object_has_exact_text_and_every_field() -> None:
    assert RESERVE.sealed().to_json() == {
        "sequence": 2,
        "kind": "reserve",
        "amount": "0.700000001",
        "scope": {"shard": [0, 3]},
        "event": {"type": "sequential/1", "parts": []},
        "job_id": "jb_1",
        "actor": "key_analyst",
        "at": "2026-11-20T09:30:01.000000Z",
        "previous_hash": OPEN_HASH,
        "hash": RESERVE_HASH,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": 3},
        {"kind": EntryKind.CHARGE},
        {"amount": 700_000_000},
        {"scope": {"shard": [0]}},
        {"event": {"type": "parallel/1", "parts": []}},
        {"job_id": "jb_2"},
        {"actor": "worker"},
        {"at": "2026-11-20T09:30:01.000001Z"},
        {"previous_hash": FIRST_PREVIOUS_HASH},
        {"details": {"attested_by": "key_owner"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_field_is_bound_by_the_hash(change: dict[str, object]) -> None:
    assert replace(RESERVE, **change).sealed().hash != RESERVE_HASH


@given(
    st.integers(1, 10**18), st.text(max_size=20).filter(lambda text: text.isprintable())
)
def test_the_hash_survives_a_round_trip_through_json(amount: int, actor: str) -> None:
    sealed = replace(RESERVE, amount=amount, actor=actor).sealed()
    read = json.loads(json.dumps(sealed.to_json()))
    stated = read.pop("hash")
    text = json.dumps(read, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest() == stated


@pytest.mark.parametrize("details", [None, {}])
def test_the_json_form_of_an_entry_without_details_has_no_details_member(
    details: dict[str, str] | None,
) -> None:
    entry = replace(OPEN, details=details).sealed()
    assert "details" not in entry.to_json()
    assert entry.hash == OPEN_HASH


def test_details_stand_in_the_object_as_they_are() -> None:
    details = {"reason": "a longer study", "earlier": {"cap": "3"}}
    assert replace(OPEN, details=details).sealed().to_json()["details"] == details


def test_no_kind_lowers_what_was_spent() -> None:
    """Kinds of acts have a hyphen and are entries of the control chain, which has no
    budget.
    """
    of_accounts = {kind.value for kind in EntryKind if "-" not in kind}
    assert of_accounts == {
        "open",
        "reserve",
        "charge",
        "void",
        "expire",
        "cap",
        "join",
        "load",
        "state",
    }
