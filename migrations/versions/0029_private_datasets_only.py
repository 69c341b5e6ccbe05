"""Refuses public datasets and their models, and removes what is left of erased ones.

Until their running jobs end, processes of the version before read and write the columns ``visibility`` and ``privacy``:
both get a default, and a later revision drops them.

Revision ID: 0029
Revises: 0028
"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from app.core.errors import InstallationError

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

_DATASETS = sa.table("datasets", *map(sa.column, ("id", "name", "visibility", "deleted_at")))
_MODELS = sa.table("models", *map(sa.column, ("id", "dataset_name", "privacy")))
_JOBS = sa.table("jobs", sa.column("id"))
_OF_DATASETS = ("grants", "epochs", "profiles", "evaluations", "job_datasets")
_SHOWN = 20


def upgrade() -> None:
    _refuse()
    _remove_erased()
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP TRIGGER fixed_datasets_visibility ON datasets")
        op.execute("DROP FUNCTION fixed_datasets_visibility()")
    for table, column, value in (("datasets", "visibility", "private"), ("models", "privacy", "differential")):
        with op.batch_alter_table(table) as batch:  # on SQLite, the rebuild drops the trigger
            batch.alter_column(column, existing_type=sa.Text(), existing_nullable=False, server_default=value)
            batch.drop_constraint(op.f(f"ck_{table}_{column}_known"), type_="check")
            batch.create_check_constraint(op.f(f"ck_{table}_{column}_known"), f"{column} = '{value}'")


def _refuse() -> None:
    """Names the public datasets and the models without privacy that the version before has to export and remove.

    Raises:
        InstallationError: there is one.
    """
    connection = op.get_bind()
    is_public = (_DATASETS.c.visibility == "public") & _DATASETS.c.deleted_at.is_(None)
    datasets = connection.execute(sa.select(_DATASETS.c.name, _DATASETS.c.id).where(is_public).order_by("id")).all()
    without = _MODELS.c.privacy == "none"
    models = connection.execute(sa.select(_MODELS.c.dataset_name, _MODELS.c.id).where(without).order_by("id")).all()
    if datasets or models:
        raise InstallationError(
            "this version has no public datasets and no models without privacy; nothing was changed. With the version "
            "before, save what you need (grovekeeper models download MODEL FILE; grovekeeper evaluations list MODEL "
            "--json), then remove them (grovekeeper models delete MODEL; grovekeeper datasets delete DATASET), and "
            f"upgrade. Public datasets: {_listed(datasets)}. Models without privacy, by dataset: {_listed(models)}. "
            "The forests without privacy are in benchmarks/papers/forests of the source code"
        )


def _listed(rows: Sequence[sa.Row[tuple[str, str]]]) -> str:
    more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
    return (", ".join(f"{name} ({row_id})" for name, row_id in rows[:_SHOWN]) or "none") + more


def _remove_erased() -> None:
    """Removes erased public datasets, which have no account, with their jobs and evaluations.

    The acts of administration about them stay in the control chain.
    """
    connection = op.get_bind()
    public = _DATASETS.c.visibility == "public"
    ids = connection.execute(sa.select(_DATASETS.c.id).where(public)).scalars().all()
    if not ids:
        return
    jobs = sa.table("job_datasets", sa.column("job_id"), sa.column("dataset_id"))
    evaluations = sa.table("evaluations", sa.column("id"), sa.column("dataset_id"))
    evaluated = sa.table("evaluated_models", sa.column("evaluation_id"))
    connection.execute(
        sa.delete(_JOBS).where(_JOBS.c.id.in_(sa.select(jobs.c.job_id).where(jobs.c.dataset_id.in_(ids))))
    )
    of_evaluations = sa.select(evaluations.c.id).where(evaluations.c.dataset_id.in_(ids))
    connection.execute(sa.delete(evaluated).where(evaluated.c.evaluation_id.in_(of_evaluations)))
    for name in _OF_DATASETS:
        table = sa.table(name, sa.column("dataset_id"))
        connection.execute(sa.delete(table).where(table.c.dataset_id.in_(ids)))
    connection.execute(sa.delete(_DATASETS).where(public))
