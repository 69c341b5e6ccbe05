"""Populations become accounts with entries of their own.

What an account row holds moves there. The chain of a population that exists begins now: ``open`` with its cap, then one
``join`` for each member, in the order in which they joined, with what lies on its tightest joint cell now. On accounts
with a δ the highest cap is what a reader of that chain computes: the cap, and the highest cap of every member that
holds or has spent anything.

Revision ID: 0015
Revises: 0014
"""

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import rfc8785
import sqlalchemy as sa
from alembic import op

from app.db.append_only import create_append_only_triggers

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_PLACES = {"pure": 9, "zcdp": 12, "gdp": 12}
_MOST_CHOICES = 200_000
_BLOCK = 256
_KIND = "kind IN ('open', 'reserve', 'charge', 'void', 'expire', 'cap', 'join', 'load')"


def upgrade() -> None:
    with op.batch_alter_table("accounts") as accounts:
        accounts.alter_column("adjacency", nullable=True, existing_type=sa.Text())
        accounts.alter_column("privacy_unit", nullable=True, existing_type=sa.Text())
    with op.batch_alter_table("entries") as entries:
        entries.drop_constraint(op.f("ck_entries_kind_known"), type_="check")
        entries.create_check_constraint(op.f("ck_entries_kind_known"), _KIND)
    op.add_column("population_members", sa.Column("load", INTEGER, nullable=True))
    connection = op.get_bind()
    at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    for population in connection.execute(sa.text("SELECT * FROM populations ORDER BY id")).mappings().all():
        _begin(connection, population, at=at)
    create_append_only_triggers(connection, "entries", key=("account_id", "sequence"))
    with op.batch_alter_table("population_members") as members:
        members.alter_column("load", nullable=False, existing_type=INTEGER)
        members.create_check_constraint(op.f("ck_population_members_load_not_negative"), "load >= 0")
    with op.batch_alter_table("populations") as populations:
        populations.drop_constraint(op.f("ck_populations_cap_not_negative"), type_="check")
        populations.drop_constraint(op.f("ck_populations_printable_covers_cap"), type_="check")
        for name in ("accountant", "cap", "printable", "delta"):
            populations.drop_column(name)


def _begin(connection: sa.Connection, population: sa.RowMapping, *, at: str) -> None:
    """Writes the account of a population, and its first entries."""
    facts = {"population": population["id"], "accountant": population["accountant"], "delta": population["delta"]}
    said: list[tuple[str, int, str, dict[str, Any]]] = [("open", population["cap"], population["declared_by"], facts)]
    highest_cap, places = population["cap"], _PLACES[population["accountant"]]
    for member in connection.execute(_MEMBERS, {"id": population["id"]}).mappings().all():
        load = _load(connection, member)
        highest_cap += member["highest_cap"] if load and population["accountant"] != "pure" else 0
        said.append(("join", load, "migration", {"member": _as_it_joins(member, places)}))
        connection.execute(_SET_LOAD, {"load": load, "id": member["account_id"]})
    account = {name: population[name] for name in ("id", "name", "accountant", "cap", "delta")}
    last = _write(connection, population["id"], said, places=places, at=at)
    connection.execute(_ADD_ACCOUNT, {**account, "highest_cap": highest_cap, "size": len(said), "last": last, "at": at})


def _as_it_joins(member: sa.RowMapping, places: int) -> dict[str, Any]:
    return {
        "dataset": member["account_id"],
        "sequence": member["last_sequence"],
        "hash": member["last_hash"],
        "adjacency": member["adjacency"],
        "unit_column": json.loads(member["privacy_unit"])["column"],
        "highest_cap": _text(member["highest_cap"], places),
    }


def _write(
    connection: sa.Connection,
    account_id: str,
    said: list[tuple[str, int, str, dict[str, Any]]],
    *,
    places: int,
    at: str,
) -> str:
    """Writes entries from the first on, and the hashes of the subtrees that they complete; returns the last hash."""
    hashes: list[str] = []
    for sequence, (kind, amount, actor, details) in enumerate(said, start=1):
        previous = hashes[-1] if hashes else "0" * 64
        entry = {
            "sequence": sequence, "kind": kind, "amount": _text(amount, places), "scope": {}, "event": None,
            "job_id": None, "actor": actor, "at": at, "previous_hash": previous, "details": details,
        }  # fmt: skip
        hashes.append(hashlib.sha256(rfc8785.dumps(entry)).hexdigest())
        row = {"account_id": account_id, "sequence": sequence, "kind": kind, "amount": amount, "actor": actor, "at": at}
        texts = {"scope": "{}", "details": rfc8785.dumps(details).decode("utf-8")}
        connection.execute(_ADD_ENTRY, {**row, **texts, "previous_hash": previous, "hash": hashes[-1]})
    _write_blocks(connection, account_id, [hashlib.sha256(b"\x00" + bytes.fromhex(leaf)).digest() for leaf in hashes])
    return hashes[-1]


def _write_blocks(connection: sa.Connection, account_id: str, level: list[bytes]) -> None:
    """Every complete subtree of 2⁸, 2¹⁶, … leaves, as revision 0009 began to store them."""
    for height in itertools.count(8, 8):
        level = [_fold(level[low : low + _BLOCK]) for low in range(0, len(level) - _BLOCK + 1, _BLOCK)]
        for position, digest in enumerate(level):
            block = {"account_id": account_id, "height": height, "position": position, "hash": digest.hex()}
            connection.execute(_ADD_BLOCK, block)
        if len(level) < _BLOCK:
            return


def _fold(level: list[bytes]) -> bytes:
    while len(level) > 1:
        level = [hashlib.sha256(b"\x01" + level[at] + level[at + 1]).digest() for at in range(0, len(level), 2)]
    return level[0]


def _load(connection: sa.Connection, member: sa.RowMapping) -> int:
    rows = connection.execute(_BOXES, {"id": member["account_id"]}).all()
    boxes = [({name: frozenset(cells) for name, cells in json.loads(scope).items()}, load) for scope, load in rows]
    return min(_largest(boxes), member["highest_cap"])  # every admission was below it: a bound is too


def _largest(boxes: Sequence[tuple[dict[str, frozenset[Any]], int]]) -> int:
    """The largest sum of boxes that cover one joint cell; a bound over it where there are too many choices.

    A cell of a partition is in the boxes that do not restrict the partition, and in some of the others. Cells that are
    in the same ones are one choice, cells that no box names are in no more than these.
    """
    choices = [set(_in_common(name, boxes)) for name in sorted({name for scope, _ in boxes for name in scope})]
    loads = [load for _, load in boxes]
    if math.prod(map(len, choices)) > _MOST_CHOICES:
        return min(max(sum(loads[index] for index in each) for each in choice) for choice in choices)
    everywhere = frozenset(range(len(boxes)))
    return max(sum(loads[index] for index in everywhere.intersection(*each)) for each in itertools.product(*choices))


def _in_common(name: str, boxes: Sequence[tuple[dict[str, frozenset[Any]], int]]) -> Iterable[frozenset[int]]:
    """For every cell of a partition that is named, the boxes that it is in."""
    for cell in frozenset[Any]().union(*(scope[name] for scope, _ in boxes if name in scope)):
        yield frozenset(index for index, (scope, _) in enumerate(boxes) if name not in scope or cell in scope[name])


def _text(steps: int, places: int) -> str:
    text = format(Decimal(steps).scaleb(-places), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


_MEMBERS = sa.text(
    "SELECT account_id, adjacency, privacy_unit, highest_cap, last_sequence, last_hash FROM population_members"
    " JOIN accounts ON accounts.id = account_id WHERE population_id = :id ORDER BY joined_at, account_id"
)
_BOXES = sa.text("SELECT scope, charged + reserved FROM account_boxes WHERE account_id = :id")
_SET_LOAD = sa.text("UPDATE population_members SET load = :load WHERE account_id = :id")
_ADD_ACCOUNT = sa.text(
    "INSERT INTO accounts"
    " (id, name, accountant, cap, highest_cap, delta, partitions, last_sequence, last_hash, last_at)"
    " VALUES (:id, :name, :accountant, :cap, :highest_cap, :delta, '[]', :size, :last, :at)"
)
_ADD_ENTRY = sa.text(
    "INSERT INTO entries (account_id, sequence, kind, amount, scope, actor, at, previous_hash, hash, details)"
    " VALUES (:account_id, :sequence, :kind, :amount, :scope, :actor, :at, :previous_hash, :hash, :details)"
)
_ADD_BLOCK = sa.text("INSERT INTO log_blocks VALUES (:account_id, :height, :position, :hash)")
