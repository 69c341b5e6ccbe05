"""Populations: one cap over the accounts of all datasets about the same people.

Until now a dataset's population was a name that nothing followed from. The datasets of one key that named the same
population, and can be added up, become its members; the first one's cap is its cap. A dataset that cannot be added up
with the first one, or that another key declared, gets a population of its own under a name that says so.

Revision ID: 0010
Revises: 0009
"""

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
_MAX_NAME_CHARS = 64


def upgrade() -> None:
    populations = op.create_table(
        "populations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("accountant", sa.Text(), nullable=False),
        sa.Column("cap", INTEGER, nullable=False),
        sa.Column("printable", INTEGER, nullable=False),
        sa.Column("delta", sa.Text(), nullable=True),
        sa.Column("adjacency", sa.Text(), nullable=True),
        sa.Column("unit_column", sa.Text(), nullable=True),
        sa.Column("declared_by", sa.Text(), nullable=False),
        sa.Column("created_at", INSTANT, nullable=False),
        sa.CheckConstraint("cap >= 0", name=op.f("ck_populations_cap_not_negative")),
        sa.CheckConstraint("printable >= cap", name=op.f("ck_populations_printable_covers_cap")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_populations")),
        sa.UniqueConstraint("name", name=op.f("uq_populations_name")),
    )
    members = op.create_table(
        "population_members",
        sa.Column("account_id", sa.Text(), nullable=False),
        sa.Column("population_id", sa.Text(), nullable=False),
        sa.Column("joined_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("account_id", name=op.f("pk_population_members")),
    )
    op.create_index(op.f("ix_population_members_population_id"), "population_members", ["population_id"], unique=False)
    rename = sa.text("UPDATE datasets SET population = :name WHERE id = :id")
    names: set[str] = set()
    for number, group in enumerate(_groups()):
        first = group[0]
        name = first["population"]
        if name in names:
            name = f"{first['population'][: _MAX_NAME_CHARS - len(first['id']) - 1]}-{first['id']}"
        names.add(name)
        population_id = f"pp_{number}_{first['id']}"
        loads = [each["load"] for each in group]
        spent = (
            sum(loads) if first["accountant"] == "pure" else sum(each["highest_cap"] for each in group if each["load"])
        )
        op.bulk_insert(
            populations,
            [
                {
                    "id": population_id,
                    "name": name,
                    "printable": max(first["cap"], spent),
                    **{key: first[key] for key in ("accountant", "cap", "delta", "adjacency", "unit_column")},
                    **{key: first[key] for key in ("declared_by", "created_at")},
                }
            ],
        )
        op.bulk_insert(
            members,
            [
                {"account_id": each["id"], "population_id": population_id, "joined_at": each["created_at"]}
                for each in group
            ],
        )
        for each in group:
            op.get_bind().execute(rename, {"name": name, "id": each["id"]})


def _groups() -> Iterator[list[dict[str, Any]]]:
    """Datasets that named the same population and can be added up, the earliest first."""
    found: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for each in _datasets():
        key = (
            *(each[name] for name in ("population", "declared_by", "accountant", "delta", "adjacency", "unit_column")),
        )
        found.setdefault(key, []).append(each)
    yield from found.values()


def _datasets() -> Iterator[dict[str, Any]]:
    """What lies on an account's boxes together bounds what lies on its tightest cell; so does its highest cap."""
    for row in op.get_bind().execute(sa.text(_NAMED)).mappings().all():
        unit_column = json.loads(row["unit"])["column"]
        yield {**row, "unit_column": unit_column, "load": min(row["boxes"], row["highest_cap"])}


_NAMED = """
SELECT datasets.id, datasets.population, datasets.declared_by, datasets.created_at, accounts.accountant, accounts.cap,
    accounts.highest_cap, accounts.delta, accounts.adjacency, accounts.privacy_unit AS unit,
    CAST(COALESCE((SELECT SUM(charged + reserved) FROM account_boxes WHERE account_id = accounts.id), 0) AS BIGINT)
    AS boxes
FROM datasets JOIN accounts ON accounts.id = datasets.id
WHERE datasets.population IS NOT NULL
ORDER BY datasets.created_at, datasets.id
"""
