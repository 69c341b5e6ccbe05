"""Reservations for mechanisms that run elsewhere may declare a loss instead of an event; keys may be granted to attest.

Revision ID: 0011
Revises: 0010
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("reservations") as reservations:
        reservations.alter_column("event", nullable=True, existing_type=sa.Text())
    with op.batch_alter_table("grants") as grants:
        grants.drop_constraint(op.f("ck_grants_role_known"), type_="check")
        grants.create_check_constraint(
            op.f("ck_grants_role_known"), "role IN ('owner', 'attester', 'analyst', 'predictor', 'auditor')"
        )
