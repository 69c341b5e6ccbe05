"""Tests that settings are read and documented from one table, and that messages never
show a secret.
"""

import dataclasses
import os
from pathlib import Path

import pytest

from app.core.errors import InstallationError
from app.core.settings import SETTINGS, Settings, to_markdown, unknown_variables
from grovekeeper_client import settings as of_client

_PAGE = Path(__file__).parents[3] / "docs" / "settings.md"


def test_the_page_is_generated_from_the_table() -> None:
    assert _PAGE.read_text(encoding="utf-8") == to_markdown(), (
        "run: python -m app.core.settings > docs/settings.md"
    )


def test_every_field_is_a_documented_setting() -> None:
    assert [field.name for field in dataclasses.fields(Settings)] == [
        setting.name for setting in SETTINGS
    ]
    assert all(setting.meaning.endswith(".") for setting in SETTINGS)


def test_documented_defaults_equal_the_defaults_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/grace")
    defaults = Settings.from_environment({})
    documented = {setting.name: setting for setting in SETTINGS}
    assert defaults.home == Path("/home/grace/.grovekeeper")
    assert (
        defaults.database_url
        == "sqlite:////home/grace/.grovekeeper/grovekeeper.sqlite3"
    )
    for field in dataclasses.fields(Settings):
        if field.name not in ("home", "database_url"):
            setting, value = documented[field.name], getattr(defaults, field.name)
            assert value == (
                setting.read(setting.default) if setting.default else None
            ), field.name


def test_settings_are_read_from_variables_flags_and_files(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("\ufeffboss.secret\r\n", encoding="utf-8")
    settings = Settings.from_environment(
        {
            "GROVEKEEPER_HOME": str(tmp_path),
            "GROVEKEEPER_PORT": "1",
            "GROVEKEEPER_WORKERS": "3",
            "GROVEKEEPER_LOG_LEVEL": "warning",
            "GROVEKEEPER_ADMIN_KEY_FILE": str(tmp_path / "key"),
            "GROVEKEEPER_MIGRATION_URL": "",
        },
        port=2,
        workers=None,
    )
    assert (settings.port, settings.workers, settings.log_level) == (2, 3, "WARNING")
    assert settings.admin_key == "boss.secret"
    assert settings.migration_url is None
    assert settings.database_url == f"sqlite:///{tmp_path}/grovekeeper.sqlite3"


def test_a_secret_of_a_variable_is_read_as_that_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "address").write_text("sqlite:////srv/grove.db\r\n")
    for environ in (
        {"GROVEKEEPER_DATABASE_URL": "sqlite:////srv/grove.db\r\n"},
        {"GROVEKEEPER_DATABASE_URL_FILE": "~/address"},
    ):
        settings = Settings.from_environment(environ)
        assert settings.database_url == "sqlite:////srv/grove.db"
    with pytest.raises(InstallationError):
        Settings.from_environment({"GROVEKEEPER_HOME": "~nobody-of-this-name/grove"})


def test_the_command_line_and_the_client_read_the_same_address_and_key(
    tmp_path: Path,
) -> None:
    environ = {
        "GROVEKEEPER_HOME": str(tmp_path),
        "GROVEKEEPER_URL": " http://x:1 ",
        "GROVEKEEPER_API_KEY": "key_a.b\n",
    }
    settings = Settings.from_environment(environ)
    assert (settings.url, settings.api_key) == (
        of_client.url_of(environ),
        of_client.key_of(environ),
    )
    assert (settings.url, settings.api_key) == ("http://x:1", "key_a.b")


def test_only_secrets_are_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "port").write_text("9999", encoding="utf-8")
    assert (
        Settings.from_environment(
            {"GROVEKEEPER_PORT_FILE": str(tmp_path / "port")}
        ).port
        == 8731
    )


@pytest.mark.parametrize(
    "environ",
    [
        {"GROVEKEEPER_PORT": "tcp://10.0.0.1:8731"},
        {"GROVEKEEPER_PORT": "65536"},
        {"GROVEKEEPER_PORT": "-1"},
        {"GROVEKEEPER_WORKERS": "-1"},
        {"GROVEKEEPER_WORKERS": "1e9"},
        {"GROVEKEEPER_LEASE_TTL_S": "0"},
        {"GROVEKEEPER_POLL_INTERVAL_S": "nan"},
        {"GROVEKEEPER_POLL_INTERVAL_S": "0"},
        {"GROVEKEEPER_LOG_LEVEL": "LOUD-SECRET"},
        {"GROVEKEEPER_OIDC_JWKS": "http://login.example.org/keys"},
        {"GROVEKEEPER_OIDC_JWKS": "ftp://login.example.org/keys"},
        {"GROVEKEEPER_OIDC_JWKS": "https:///keys"},
        {"GROVEKEEPER_OIDC_MAX_LIFETIME_S": "59"},
        {"GROVEKEEPER_OIDC_MAX_LIFETIME_S": "86401"},
        {"GROVEKEEPER_OIDC_ROLES": "stewards"},
        {"GROVEKEEPER_OIDC_ROLES": '["owner"]'},
        {"GROVEKEEPER_OIDC_ROLES": '{"stewards": "analyst"}'},
        {"GROVEKEEPER_OIDC_ROLES": '{"stewards": {}}'},
        {"GROVEKEEPER_OIDC_ROLES": '{"stewards": "owner", "stewards": "admin"}'},
        {"GROVEKEEPER_ADMIN_KEY": "SECRET", "GROVEKEEPER_ADMIN_KEY_FILE": "/nowhere"},
        {"GROVEKEEPER_ADMIN_KEY_FILE": "/nowhere/at/all"},
        {"GROVEKEEPER_ADMIN_KEY_FILE": "/dev/null"},
        {"GROVEKEEPER_DATABASE_URL": " \t "},
        {"GROVEKEEPER_DATABASE_URL": "\r"},
        {"GROVEKEEPER_URL": "\n"},
        {"GROVEKEEPER_HOME": '"/srv/grove"'},
        {"GROVEKEEPER_HOME": "/srv/grove\r"},
        {"GROVEKEEPER_CHECKPOINT_DIR": " /srv/heads"},
        {"GROVEKEEPER_DATABASE_URL": "'sqlite:////srv/grove.db'"},
        {"GROVEKEEPER_OIDC_AUDIENCE": "grove\r"},
        {"GROVEKEEPER_PATH_PREFIX": "/a\n"},
        {"GROVEKEEPER_PORT": '"8731"'},
    ],
)
def test_an_invalid_value_is_refused_by_name_and_not_shown(
    environ: dict[str, str],
) -> None:
    with pytest.raises(InstallationError) as raised:
        Settings.from_environment(environ)
    message = str(raised.value)
    assert next(iter(environ)).removesuffix("_FILE") in message
    assert not any(value in message for value in environ.values() if len(value) > 2)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("absent", "cannot be read: No such file"),
        ("", "cannot be read: Is a directory"),
        ("utf16", "is not UTF-8 text"),
        ("empty", "is empty"),
    ],
)
def test_the_cause_is_said_why_a_file_gives_no_secret(
    tmp_path: Path, name: str, cause: str
) -> None:
    (tmp_path / "utf16").write_text("boss.secret", encoding="utf-16")
    (tmp_path / "empty").write_text("\n", encoding="utf-8")
    file = str(tmp_path / name)
    with pytest.raises(
        InstallationError,
        match=f"the file that GROVEKEEPER_ADMIN_KEY_FILE names {cause}",
    ) as raised:
        Settings.from_environment({"GROVEKEEPER_ADMIN_KEY_FILE": file})
    assert file not in str(raised.value), "a secret may stand in its place"


@pytest.mark.parametrize("around", ['"{}"', "'{}'", " {}", "{}\r"])
def test_quotes_and_blanks_around_the_name_of_a_file_are_named(
    tmp_path: Path, around: str
) -> None:
    (tmp_path / "key").write_text("boss.secret", encoding="utf-8")
    variable = "GROVEKEEPER_ADMIN_KEY_FILE"
    with pytest.raises(InstallationError, match=f"{variable} has quotes, blanks"):
        Settings.from_environment({variable: around.format(tmp_path / "key")})


@pytest.mark.parametrize(
    "store",
    [
        "s3://ID:SECRETKEY@bucket/x",
        "s3://SECRETKEY@bucket/x",
        # many keys have a slash, which ends the authority of an address
        "s3://ID:SECRET/KEY@bucket/x",
        "s3://ID:SECRETKEY",
        "s3://bucket/x?secret=SECRETKEY",
        "s3://bucket/x#SECRETKEY",
        "az://account:SECRETKEY@container/x",
        "https://account.blob.core.windows.net/container/x?sv=1&sig=SECRETKEY",
        "https://u:SECRETKEY@127.0.0.1:9000/bucket",
        "abfss://SECRETKEY:x@account.dfs.core.windows.net/x",
        "abfss://container@account.dfs.core.windows.net/SECRETKEY@x",
        "file://u:SECRETKEY@/srv/bucket",
    ],
)
def test_the_address_of_a_store_has_no_secret(store: str) -> None:
    with pytest.raises(
        InstallationError, match="GROVEKEEPER_STORE has no user, password or query"
    ) as raised:
        Settings.from_environment({"GROVEKEEPER_STORE": store})
    assert "SECRET" not in str(raised.value)


@pytest.mark.parametrize(
    "store",
    [
        "s3://bucket/prefix",
        "gs://bucket",
        "az://container/prefix",
        "abfss://container@account.dfs.core.windows.net/x",
        "https://127.0.0.1:9000/bucket",
        "file:///srv/a@b:c",
    ],
)
def test_the_address_of_a_store_names_a_place(store: str) -> None:
    assert Settings.from_environment({"GROVEKEEPER_STORE": store}).store == store


def test_a_text_that_is_not_utf_8_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python reads such bytes of the environment and of arguments as surrogates. Paths
    travel in JSON and addresses.
    """
    strange = os.fsdecode(b"/tmp/jos\xe9")
    for environ, flags, name in (
        ({"GROVEKEEPER_HOME": strange}, {}, "HOME"),
        ({}, {"home": Path(strange)}, "HOME"),
        ({"GROVEKEEPER_DATABASE_URL": f"sqlite:///{strange}/x"}, {}, "DATABASE_URL"),
        ({"GROVEKEEPER_STORE": f"s3://{strange}"}, {}, "STORE"),
    ):
        with pytest.raises(
            InstallationError, match=rf"^GROVEKEEPER_{name} is not UTF-8"
        ):
            Settings.from_environment(environ, **flags)
    monkeypatch.setenv("HOME", strange)
    with pytest.raises(InstallationError, match=r"^GROVEKEEPER_HOME is not UTF-8"):
        Settings.from_environment({})


@pytest.mark.parametrize(
    "prefix",
    ["/grovekeeper", "/tools/grovekeeper", "/A-z_0.9~", "/..a/...", "/" + "a" * 199],
)
def test_a_path_prefix_is_one_or_more_names(prefix: str) -> None:
    assert (
        Settings.from_environment({"GROVEKEEPER_PATH_PREFIX": prefix}).path_prefix
        == prefix
    )


@pytest.mark.parametrize(
    "prefix",
    [
        "/", "grovekeeper", "/grovekeeper/", "//grovekeeper", "/a//b", "/a b", "/a%20b", "/ä", '/"', "/<a>", "/a?b",
        "/a#b", "/a\\b", "/\na", "/.", "/..", "/a/../b", "/a/.", "https://host/a", "/" + "a" * 200,
    ],
)  # fmt: skip
def test_a_path_prefix_that_is_no_path_is_refused_with_its_form(prefix: str) -> None:
    with pytest.raises(
        InstallationError,
        match=r"GROVEKEEPER_PATH_PREFIX is no path prefix\. .*`/tools/grovekeeper`",
    ):
        Settings.from_environment({"GROVEKEEPER_PATH_PREFIX": prefix})


def test_the_keys_of_a_provider_come_from_an_address_or_a_file() -> None:
    provider = {
        "GROVEKEEPER_OIDC_ISSUER": "https://login.example.org",
        "GROVEKEEPER_OIDC_AUDIENCE": "grovekeeper",
    }
    for location in ("https://login.example.org/keys", "http://127.0.0.1:8080/keys"):
        assert (
            Settings.from_environment(
                provider | {"GROVEKEEPER_OIDC_JWKS": location}
            ).oidc_jwks
            == location
        )
    settings = Settings.from_environment(
        provider | {"GROVEKEEPER_OIDC_JWKS": "/etc/keys.json"}
    )
    assert settings.oidc_jwks == Path("/etc/keys.json")


def test_the_keys_of_a_provider_are_found_from_an_issuer_with_tls_and_tokens_live_an_hour() -> (
    None
):
    provider = {
        "GROVEKEEPER_OIDC_ISSUER": "https://login.example.org",
        "GROVEKEEPER_OIDC_AUDIENCE": "grovekeeper",
    }
    settings = Settings.from_environment(provider)
    assert settings.oidc_jwks is None
    assert settings.oidc_max_lifetime_s == 3_600
    for issuer in ("http://login.example.org", "https://[", "login"):
        with pytest.raises(
            InstallationError, match="GROVEKEEPER_OIDC_JWKS must be set"
        ):
            Settings.from_environment(provider | {"GROVEKEEPER_OIDC_ISSUER": issuer})


@pytest.mark.parametrize("left_out", ["ISSUER", "AUDIENCE", "JWKS"])
def test_a_provider_is_named_completely_or_not_at_all(left_out: str) -> None:
    environ = {
        f"GROVEKEEPER_OIDC_{name}": "a"
        for name in ("ISSUER", "AUDIENCE", "JWKS")
        if name != left_out
    }
    with pytest.raises(
        InstallationError, match=f"GROVEKEEPER_OIDC_{left_out} must be set"
    ):
        Settings.from_environment(environ)


def test_an_override_of_an_unknown_setting_raises() -> None:
    with pytest.raises(TypeError):
        Settings.from_environment({}, prot=1)


def test_secrets_are_not_in_the_repr() -> None:
    environ = {setting.variable: "SECRET" for setting in SETTINGS if setting.secret}
    assert len(environ) == 5
    settings = Settings.from_environment(environ)
    assert settings.admin_key == settings.api_key == settings.database_url == "SECRET"
    assert "SECRET" not in repr(settings)


def test_a_variable_that_is_no_setting_is_found_unless_a_cluster_set_it() -> None:
    """Every setting is known, and the file of every secret."""
    known = {setting.variable: "x" for setting in SETTINGS} | {
        "GROVEKEEPER_ADMIN_KEY_FILE": "x",
        "HOME": "/",
    }
    of_a_cluster = {
        "GROVEKEEPER_SERVICE_HOST": "10.0.0.1",
        "GROVEKEEPER_SERVICE_PORT_HTTP": "8731",
        "GROVEKEEPER_PORT_8731_TCP_ADDR": "10.0.0.1",
        "GROVEKEEPER_API_PORT": "tcp://10.0.0.1:8731",
    }
    assert unknown_variables(known | of_a_cluster) == []
    misspelt = {"GROVEKEEPER_RELEASE_INTERVAL": "60", "GROVEKEEPER_HOME_FILE": "x"}
    assert unknown_variables(known | misspelt) == [
        "GROVEKEEPER_HOME_FILE",
        "GROVEKEEPER_RELEASE_INTERVAL",
    ]
