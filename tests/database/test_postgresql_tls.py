"""With ``sslmode=verify-full`` in its address, no process speaks to a PostgreSQL server
that it cannot identify.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from app.core.errors import Unavailable
from app.db.database import Database
from tests.support.tls_proxy import Certificates, make_certificates, tls_proxy

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def proxy(postgres_url: str, certificates: Certificates) -> Iterator[int]:
    """The port of a server with TLS."""
    with tls_proxy(make_url(postgres_url).port or 5432, certificates) as port:
        yield port


def _verified(
    url: str, authority: Path, *, port: int | None = None, host: str = "127.0.0.1"
) -> Database:
    """A database whose address demands that the server shows a certificate of the
    authority for the host.
    """
    options = {
        "sslmode": "verify-full",
        "sslrootcert": str(authority),
        "connect_timeout": "20",
    }
    address = make_url(url).set(host=host).update_query_dict(options)
    address = address if port is None else address.set(port=port)
    return Database.open(address.render_as_string(hide_password=False), pool_size=1)


def test_a_server_with_the_right_certificate_is_used_over_tls(
    postgres_url: str, certificates: Certificates, proxy: int
) -> None:
    database = _verified(postgres_url, certificates.authority, port=proxy)
    with database.read() as session:
        assert session.execute(text("SELECT 1")).scalar_one() == 1
        connection = session.connection().connection.dbapi_connection
        assert connection is not None
        assert connection.pgconn.ssl_in_use  # type: ignore[attr-defined]  # psycopg's
    database.close()


def _is_refused(database: Database, reason: str) -> bool:
    with pytest.raises(Unavailable) as refusal, database.read() as session:
        session.execute(text("SELECT 1"))
    database.close()
    return reason in str(refusal.value.__cause__)


def test_a_server_of_another_authority_is_refused(
    postgres_url: str, proxy: int, tmp_path: Path
) -> None:
    other = make_certificates(tmp_path / "other").authority
    assert _is_refused(
        _verified(postgres_url, other, port=proxy), "certificate verify failed"
    )


def test_a_server_under_another_name_is_refused(
    postgres_url: str, certificates: Certificates, proxy: int
) -> None:
    database = _verified(
        postgres_url, certificates.authority, port=proxy, host="localhost"
    )
    assert _is_refused(database, 'does not match host name "localhost"')


def test_a_server_without_tls_is_refused(
    postgres_url: str, certificates: Certificates
) -> None:
    database = _verified(postgres_url, certificates.authority)
    assert _is_refused(database, "server does not support SSL, but SSL was required")
