"""Changes no table: entries from here on have forms that processes of the version before cannot read.

A stated state names scopes by digest, and a scope of all uploads is a number. A process of the version before stops at
a revision that is not its own. It refuses the number until then, as no list of cells (docs/adr/0051).

Revision ID: 0033
Revises: 0032
"""

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass
