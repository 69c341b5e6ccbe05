"""What both databases store of an access key."""

import pytest
from sqlalchemy import select

from app.access import keys
from app.access.grants import Role
from app.db.base import Base
from app.services.installation import Installation

pytestmark = pytest.mark.contract


def test_the_database_has_no_secret_of_a_key(installation: Installation) -> None:
    with installation.database.write() as session:
        key = keys.create(session, name="ada", roles=[Role.OWNER])
    _, secret = keys.split(key.text)
    with installation.database.read() as session:
        stored = repr(
            [
                session.execute(select(table)).all()
                for table in Base.metadata.sorted_tables
            ]
        )
        assert keys.authenticate(session, key.text).key_id == key.id
    assert key.id in stored
    assert secret not in stored
