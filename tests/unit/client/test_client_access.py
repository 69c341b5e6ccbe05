"""The Python client finds address and key where the command line finds them."""

from pathlib import Path

import pytest

from app.cli import command
from app.core.settings import Settings
from grovekeeper_client import access
from grovekeeper_client.errors import NoKey

KEY = "key_test." + "s" * 43


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with an admin key, and a file with another key."""
    home = tmp_path / ".grovekeeper"
    home.mkdir()
    (home / "admin.key").write_text("admin." + "a" * 43 + "\n")
    (tmp_path / "my.key").write_text(KEY + "\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    return home


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"GROVEKEEPER_URL": "http://grove.test"},
        {"GROVEKEEPER_URL": "", "GROVEKEEPER_API_KEY": KEY, "GROVEKEEPER_API_KEY_FILE": ""},
        {"GROVEKEEPER_API_KEY_FILE": "{folder}/my.key"},
        {"GROVEKEEPER_HOME": "~/.grovekeeper"},
    ],
)
def test_address_and_key_are_those_of_the_command_line(environ: dict[str, str], home: Path) -> None:
    environ = {name: text.format(folder=home.parent) for name, text in environ.items()}
    settings = Settings.from_environment(environ)
    assert access.url_of(environ) == settings.url
    assert access.key_of(environ) == (settings.api_key or command._key_of_home(settings))


def test_without_a_key_the_error_says_how_to_give_one(home: Path) -> None:
    with pytest.raises(NoKey, match="GROVEKEEPER_API_KEY"):
        access.key_of({"GROVEKEEPER_HOME": str(home / "elsewhere")})


@pytest.mark.parametrize(
    "environ",
    [
        {"GROVEKEEPER_API_KEY": KEY, "GROVEKEEPER_API_KEY_FILE": "{folder}/my.key"},
        {"GROVEKEEPER_API_KEY_FILE": "{folder}/absent.key"},
        {"GROVEKEEPER_API_KEY_FILE": "{folder}/empty.key"},
    ],
)
def test_an_unusable_key_is_refused_and_not_shown(environ: dict[str, str], home: Path) -> None:
    (home.parent / "empty.key").write_text("\n")
    with pytest.raises(ValueError) as caught:
        access.key_of({name: text.format(folder=home.parent) for name, text in environ.items()})
    assert KEY not in str(caught.value)
