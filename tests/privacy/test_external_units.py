"""External mechanisms stated per unit, and units with rows in several cells: the loss
of a unit against its charge.

The loss of a unit is computed from the cells of its rows, by a few lines that share no
code with the ledger. A test puts back the rule that distinguishes cells of a column for
such charges; the account then understates a unit's loss.
"""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from app.access.idempotency import IdempotentRequest
from app.core.errors import BudgetExceeded
from app.ledger import statements
from app.services.installation import Installation
from app.services.ledger import external as external_charges
from app.services.ledger.external import charge_external
from app.wire.reservations import ExternalIn
from tests.support import people
from tests.support.crash_scene import OWNER, open_installation

REGIONS, SHARDS = ("EU", "US"), (0, 1)
PARTITIONS = [
    {
        "name": "region",
        "kind": "column",
        "column": "region",
        "categories": list(REGIONS),
    },
    {"name": "shard", "kind": "hash", "cells": len(SHARDS)},
]
Charge = tuple[dict[str, list[Any]], int]
"""A scope, and a loss per unit in whole ε."""
CHARGES: list[Charge] = [
    ({"region": ["EU"]}, 1),
    ({"region": ["US"]}, 1),
    ({"shard": [0]}, 2),
    ({"shard": [1]}, 2),
]


@pytest.fixture
def installation(sqlite_database_url: str, tmp_path: Path) -> Iterator[Installation]:
    opened_installation = open_installation(sqlite_database_url, tmp_path / "home")
    yield opened_installation
    opened_installation.close()


def _loss_of_a_unit(charges: list[Charge]) -> int:
    """The largest loss over all regions of a unit's two rows, which share a shard."""
    worlds = itertools.product(REGIONS, REGIONS, SHARDS)
    return max(
        sum(
            epsilon
            for scope, epsilon in charges
            if {first, second} & set(scope.get("region", REGIONS))
            and shard in scope.get("shard", SHARDS)
        )
        for first, second, shard in worlds
    )


def _charged(
    installation: Installation,
    charges: list[Charge],
    *,
    max_rows: int,
    per: str = "unit",
) -> Fraction:
    """The account's stated charge of a unit."""
    dataset = people.declared(
        installation,
        privacy_unit=people.per_patient(max_rows),
        partitions=PARTITIONS,
        budget={"accountant": "pure", "epsilon": "100"},
    )["id"]
    for number, (scope, epsilon) in enumerate(charges):
        declared = {"adjacency": "add_remove", "epsilon": str(epsilon)}
        body = {
            "description": "a mean",
            "per": per,
            "declared": declared,
            "scope": scope,
        }
        request = IdempotentRequest(OWNER.key_id, "", f"k{number}", b"." * 32)
        fields = ExternalIn.model_validate(body)
        charge_external(installation, OWNER, dataset, fields, request=request)
    with installation.database.read() as session:
        return Fraction(statements.balance(session, dataset).charged, 10**9)


@pytest.mark.parametrize("n_charges", range(1, 5))
def test_no_unit_loses_more_than_the_account_says(
    installation: Installation, n_charges: int
) -> None:
    for charges in itertools.combinations(CHARGES, n_charges):
        charged = _charged(installation, list(charges), max_rows=2)
        assert charged >= _loss_of_a_unit(list(charges)), charges
    assert (
        _charged(installation, CHARGES, max_rows=2) == _loss_of_a_unit(CHARGES) == 4
    ), "and it is not more, either"


def test_separate_column_cells_would_understate_the_loss_of_a_unit(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_charges, "_coverable", lambda _dataset, scope: scope)
    by_region = CHARGES[:2]
    assert (
        _charged(installation, by_region, max_rows=2)
        == 1
        < _loss_of_a_unit(by_region)
        == 2
    )


def test_a_unit_of_one_row_pays_in_every_cell_of_a_column(
    installation: Installation,
) -> None:
    """The service bounds the rows that it stores, not those that a mechanism outside
    of it reads; the verifier accepts no other charge per unit.
    """
    assert _charged(installation, CHARGES[:2], max_rows=1) == 2


def test_a_loss_per_row_is_charged_for_every_row_of_a_unit(
    installation: Installation,
) -> None:
    charges: list[Charge] = [({"shard": [0]}, 2)]
    assert _charged(installation, charges, max_rows=3, per="row") == 6
    assert _charged(installation, charges, max_rows=3, per="unit") == 2
    with pytest.raises(BudgetExceeded):
        _charged(installation, charges, max_rows=51, per="row")
