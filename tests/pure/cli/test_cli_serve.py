"""The parts of ``serve`` that need no server: addresses, secrets, environments, the
demo's data.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import demo, serve
from app.cli.installation import HomeOptions
from app.cli.main import app
from app.cli.prepare import is_embedded
from app.core import limits, processes
from app.core.errors import InstallationError
from app.core.settings import Settings
from grovekeeper_client.cli.output import budget_bar
from grovekeeper_client.cli.problems import ExitCode
from tests.support.disks import free_bytes


def test_port_0_is_a_number_before_anything_listens() -> None:
    with serve.bound("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        assert serve.address("127.0.0.1", listener) == f"http://127.0.0.1:{port}"
        assert serve.address("::1", listener) == f"http://[::1]:{port}"


def test_an_address_that_is_taken_or_elsewhere_is_a_named_error() -> None:
    with serve.bound("127.0.0.1", 0) as listener:
        listener.listen()
        port = listener.getsockname()[1]
        with (
            pytest.raises(InstallationError, match=f"port {port}"),
            serve.bound("127.0.0.1", port),
        ):
            pytest.fail("two listen at one port")
    with (
        pytest.raises(InstallationError, match="cannot listen"),
        serve.bound("192.0.2.1", 0),
    ):
        pytest.fail("an address of somebody else was bound")
    with (
        pytest.raises(InstallationError, match="not an address"),
        serve.bound("not a host", 0),
    ):
        pytest.fail("what is no address was bound")


def test_workers_get_no_key_and_the_settings_of_the_flags(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in (
        "ADMIN_KEY",
        "ADMIN_KEY_FILE",
        "API_KEY",
        "MIGRATION_URL",
        "HOME",
        "DATABASE_URL_FILE",
    ):
        monkeypatch.setenv(f"GROVEKEEPER_{name}", "from the environment")
    settings = Settings(
        tmp_path,
        "sqlite:///x",
        workers=2,
        lease_ttl_s=9,
        poll_interval_s=0.25,
        log_level="ERROR",
        storage_key="secret",
    )
    settings = replace(settings, release_interval_s=60, store="s3://bucket/prefix")
    environ = serve.worker_environment(settings)
    assert environ["PATH"] == os.environ["PATH"]
    assert "secret" not in environ.values()
    assert Settings.from_environment(
        environ, **serve.worker_secrets(settings)
    ) == replace(settings, workers=1)
    ours = {
        name: value
        for name, value in environ.items()
        if name.startswith("GROVEKEEPER_")
    }
    assert ours == {
        "GROVEKEEPER_HOME": str(tmp_path),
        "GROVEKEEPER_LOG_LEVEL": "ERROR",
        "GROVEKEEPER_STORE": "s3://bucket/prefix",
        "GROVEKEEPER_LEASE_TTL_S": "9",
        "GROVEKEEPER_POLL_INTERVAL_S": "0.25",
        "GROVEKEEPER_RELEASE_INTERVAL_S": "60",
        "GROVEKEEPER_DASK_ROWS": "10000000",
        "GROVEKEEPER_DASK_DEADLINE_S": "600",
    }


def test_workers_get_the_settings_of_a_dask_cluster(tmp_path: Path) -> None:
    files = {f"dask_{kind}_file": tmp_path / kind for kind in ("ca", "cert", "key")}
    for file in files.values():
        file.touch()
    settings = Settings(
        tmp_path,
        "sqlite:///x",
        dask_scheduler="tls://10.0.0.5:8786",
        dask_rows=7,
        **files,
    )
    environ = serve.worker_environment(settings)
    assert (
        Settings.from_environment(
            environ, **serve.worker_secrets(settings)
        ).dask_cluster
        == settings.dask_cluster
    )
    assert environ["GROVEKEEPER_DASK_ROWS"] == "7"


def test_only_a_database_in_a_file_is_upgraded_without_asking(tmp_path: Path) -> None:
    assert is_embedded(Settings.from_environment({}, home=tmp_path))
    assert not is_embedded(Settings(tmp_path, "postgresql://grove.test/grove"))


def test_started_processes_import_this_app_in_a_folder_with_another_app(
    tmp_path: Path,
) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("raise SystemExit('the wrong app')")
    done = subprocess.run(
        processes.module_command("grovekeeper_verifier", "--help"),
        cwd=tmp_path,
        env=processes.module_environment(
            {"PATH": os.defpath, "PYTHONPATH": str(tmp_path)}
        ),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert processes.module_command("m", "a") == [sys.executable, "-m", "m", "a"]


@pytest.mark.parametrize(
    ("cap", "charged", "reserved", "bar"),
    [
        ("3", "0", "0", "." * 24),
        ("3", "3", "0", "#" * 24),
        ("3", "1.5", "1.5", "#" * 12 + "=" * 12),
        ("3", "0.000000001", "0", "." * 24),
        ("3", "2.999999999", "0", "#" * 23 + "."),
        ("1", "2", "1", "#" * 24),
        ("0", "0", "0", "." * 24),
    ],
)
def test_a_bar_is_never_fuller_than_the_account(
    cap: str, charged: str, reserved: str, bar: str
) -> None:
    assert budget_bar(cap=cap, charged=charged, reserved=reserved) == bar


def test_the_demo_holds_out_rows_that_it_never_uploads(tmp_path: Path) -> None:
    import gzip

    dataset = demo.load_dataset(tmp_path / "upload.csv.gz")
    uploaded = (
        gzip.decompress((tmp_path / "upload.csv.gz").read_bytes()).decode().splitlines()
    )
    assert len(uploaded) == dataset.n_uploaded + 1
    assert dataset.n_uploaded + len(dataset.held_out) == 32_561
    assert len(dataset.held_out) == len(dataset.held_out_labels) == 3_256
    assert dataset.public_size == 29_000
    features = [feature["name"] for feature in dataset.schema["features"]]
    assert uploaded[0].split(",") == [*features, "income"]
    assert all(list(row) == features for row in dataset.held_out)
    assert set(dataset.held_out_labels) == set(dataset.schema["label"]["classes"])
    assert dataset.held_out[0] != dict(
        zip(features, uploaded[1].split(","), strict=False)
    )


def test_a_small_disk_is_named_before_the_first_request(tmp_path: Path) -> None:
    settings = Settings.from_environment({"GROVEKEEPER_HOME": str(tmp_path)})
    serve._require_space(settings)
    refused = pytest.raises(
        InstallationError,
        match=r"^5 MiB are free on the disk of .*, and the service needs 64 MiB",
    )
    with free_bytes(5 * 2**20), refused:
        serve._require_space(settings)


@pytest.mark.parametrize(("more", "n_warnings"), [(-1, 1), (0, 0)])
def test_a_disk_that_is_too_small_for_uploads_is_a_warning(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, more: int, n_warnings: int
) -> None:
    settings = Settings.from_environment({"GROVEKEEPER_HOME": str(tmp_path)})
    with free_bytes(limits.MIN_FREE_UPLOAD_BYTES + more):
        serve._require_space(settings)
    assert len(caplog.messages) == n_warnings
    needed = f"({limits.MIN_FREE_UPLOAD_BYTES // 2**20} MiB)"
    assert all(needed in message for message in caplog.messages)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:SECRETPW@127.0.0.1:1/grove",
        "postgresql://u:SECRETPW%40@127.0.0.1:1/grove",
        "postgresql://u@127.0.0.1:1/grove?password=SECRETPW",
        "postgresql://127.0.0.1:1/grove?sslpassword=SECRETPW",
    ],
)
@pytest.mark.parametrize(
    "typed",
    ["serve", "api", "worker", "db upgrade", "db move old", "db status", "db new-signer", "db rewrap-keys",
     "backup new", "restore new", "keys create-admin"],
)  # fmt: skip
def test_a_password_in_a_flag_is_refused_and_not_shown(
    typed: str, address: str, tmp_path: Path
) -> None:
    flags = [
        "--database-url",
        *(
            ["--migration-url"]
            if typed in ("db upgrade", "db move old", "restore new")
            else []
        ),
    ]
    for flag in flags:
        result = CliRunner().invoke(
            app, [*typed.split(), "--home", str(tmp_path / "home"), flag, address]
        )
        variable = f"GROVEKEEPER_{flag.removeprefix('--').replace('-', '_').upper()}"
        assert (result.exit_code, result.stdout) == (ExitCode.WRONG_USE, "")
        assert result.stderr.startswith(f"not done: {flag} takes no password")
        assert f"set {variable} to" in result.stderr
        assert f"{variable}_FILE" in result.stderr
        assert "SECRETPW" not in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("typed", ["db status", "worker", "dask scheduler"])
def test_a_misspelt_variable_is_named_before_its_default_is_in_force(
    typed: str, tmp_path: Path
) -> None:
    environ = {
        "GROVEKEEPER_HOME": str(tmp_path / "home"),
        "GROVEKEEPER_RELEASE_INTERVAL": "60",
        "GROVEKEEPER_X": "1",
    }
    said = (
        CliRunner()
        .invoke(
            app, typed.split(), env=environ | {"GROVEKEEPER_DATABASE_URL": "mysql://x"}
        )
        .stderr
    )
    meant = "did you mean GROVEKEEPER_RELEASE_INTERVAL_S?"
    assert (
        f"note: GROVEKEEPER_RELEASE_INTERVAL is no setting and sets nothing; {meant}"
        in said
    )
    assert (
        "note: GROVEKEEPER_X is no setting and sets nothing; see docs/settings.md"
        in said
    )


def test_the_arguments_of_a_dask_worker_have_no_address_of_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(
        os, "execve", lambda _, arguments, environ: started.append((arguments, environ))
    )
    store = f"file://{tmp_path}/bucket"
    environ = {
        "DASK_SCHEDULER": "tcp://127.0.0.1:8786",
        "STORE": store,
        "HOME": str(tmp_path),
        "ADMIN_KEY": "a.SECRET",
    }
    result = CliRunner().invoke(
        app,
        ["dask", "worker"],
        env={f"GROVEKEEPER_{name}": environ[name] for name in environ},
    )
    assert result.exit_code == 0, result.output
    [(arguments, inherited)] = started
    assert store not in " ".join(arguments)
    assert {name for name in inherited if name.startswith("GROVEKEEPER_")} == {
        "GROVEKEEPER_STORE"
    }


def test_a_flag_takes_an_address_without_a_password(tmp_path: Path) -> None:
    for address in (
        "postgresql://u@127.0.0.1:1/grove",
        f"sqlite:///{tmp_path}/grove.sqlite3",
    ):
        assert (
            HomeOptions(home=tmp_path, database_url=address)
            .settings(migration_url=address)
            .database_url
            == address
        )
