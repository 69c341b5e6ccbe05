"""The operator's contact for weaknesses, as RFC 9116 has it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from app.api.main import SECURITY, create_app
from app.core.errors import InstallationError
from app.core.settings import Settings
from tests.support.in_process import in_process

Ask = Callable[[str | None], httpx.Response]


@pytest.fixture
def ask(sqlite_database_url: str, tmp_path: Path) -> Iterator[Ask]:
    """Asks a service with this contact, without a key."""
    with ExitStack() as opened:

        def send(contact: str | None) -> httpx.Response:
            settings = Settings(
                home=tmp_path / "home",
                database_url=sqlite_database_url,
                security_contact=contact,
            )
            app = create_app(settings)
            opened.callback(app.state.installation.close)
            stranger = opened.enter_context(in_process(app))
            return stranger.request("GET", SECURITY)

        yield send


@pytest.mark.parametrize(
    "contact", ["mailto:security@example.org", "https://example.org/report"]
)
def test_a_stranger_learns_where_to_report_a_weakness(ask: Ask, contact: str) -> None:
    answer = ask(contact)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    named, until = answer.text.splitlines()
    assert named == f"Contact: {contact}"
    ends_at = datetime.fromisoformat(until.removeprefix("Expires: "))
    # the standard: less than a year
    assert timedelta(days=30) < ends_at - datetime.now(UTC) < timedelta(days=365)


def test_nothing_is_made_up_for_an_operator_who_names_nobody(ask: Ask) -> None:
    assert ask(None).status_code == 404


@pytest.mark.parametrize(
    "contact",
    [
        "security@example.org",
        "http://example.org",
        "mailto:a@b\nExpires: 2000",
        "https://ä.example",
    ],
)
def test_what_is_no_address_is_refused_at_the_start(contact: str) -> None:
    with pytest.raises(InstallationError, match="GROVEKEEPER_SECURITY_CONTACT"):
        Settings.from_environment({"GROVEKEEPER_SECURITY_CONTACT": contact})
