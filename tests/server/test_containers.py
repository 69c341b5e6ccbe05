"""The commands of the Dockerfile and the compose file, run outside a container against
a real PostgreSQL.

Folders of the test replace the paths inside the image, and the real server's address
replaces the host name of the database. The commands, variables and secrets are those of
the files.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import errors
from sqlalchemy import make_url

from tests.support.ports import free_port
from tests.support.postgres import client_program, driver_url, execute
from tests.support.processes import running, stop, wait_until_ok
from tests.support.waiting import wait_for

_ROOT = Path(__file__).parents[2]
_COMPOSE: dict[str, Any] = yaml.safe_load(
    (_ROOT / "docker-compose.yml").read_text(encoding="utf-8")
)
_SERVICES: dict[str, dict[str, Any]] = _COMPOSE["services"]


def _instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", " ", (_ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in lines]


def _last(instruction: str) -> str:
    return [rest for name, rest in _instructions() if name == instruction][-1]


def test_the_image_is_built_in_two_stages_and_runs_as_nobody_special() -> None:
    names = [name for name, _ in _instructions()]
    assert names.count("FROM") == 2
    assert "ADD" not in names
    final = _instructions()[len(names) - names[::-1].index("FROM") - 1 :]
    assert ("USER", "10001:10001") in final
    assert not any("pip" in rest for name, rest in final if name == "RUN")


def test_every_install_in_the_image_is_hashed_or_offline() -> None:
    commands = [
        command
        for name, rest in _instructions()
        if name == "RUN"
        for command in rest.split("&&")
    ]
    installs = [command for command in commands if "pip install" in command]
    assert len(installs) == 3
    assert all(
        "--require-hashes" in command or "--no-index" in command for command in installs
    )


def test_files_that_the_image_copies_exist_and_are_not_ignored() -> None:
    let_through = {
        line[1:]
        for line in (_ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = {
        source.rstrip("/")
        for name, rest in _instructions()
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert copied == let_through
    assert all((_ROOT / source).exists() for source in copied)


def test_every_secret_that_a_service_reads_is_given_to_it_and_no_other() -> None:
    for name, service in _SERVICES.items():
        read = {
            Path(value).name
            for value in service.get("environment", {}).values()
            if str(value).startswith("/run/secrets/")
        }
        extra = {"owner_password", "service_password"} if name == "database" else set()
        assert set(service["secrets"]) == read | extra, name
    holders = {
        name
        for name, service in _SERVICES.items()
        if "migration_url" in service["secrets"]
    }
    assert holders == {"migrate"}


def test_services_have_no_more_rights_than_they_need() -> None:
    for name in ("migrate", "prepare", "api", "worker"):
        service = _SERVICES[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    assert _COMPOSE["networks"]["inside"] == {"internal": True}
    assert [
        name for name, service in _SERVICES.items() if "outside" in service["networks"]
    ] == ["api"]
    assert [name for name, service in _SERVICES.items() if "ports" in service] == [
        "api"
    ]
    assert all(port.startswith("127.0.0.1:") for port in _SERVICES["api"]["ports"])


@dataclass(frozen=True)
class _Stack:
    """A configured database, and a method that runs a service of the compose file
    outside a container.
    """

    folder: Path
    server_url: str

    @property
    def secrets(self) -> Path:
        return self.folder / "secrets"

    def secret(self, name: str) -> str:
        return (self.secrets / name).read_text(encoding="ascii")

    def command(self, service: str) -> list[str]:
        entry = json.loads(_last("ENTRYPOINT"))
        assert entry == ["grovekeeper"]
        return [
            str(Path(sys.executable).with_name(entry[0])),
            *_SERVICES[service]["command"],
        ]

    def environ(self, service: str, **more: str) -> dict[str, str]:
        image = dict(part.split("=", 1) for part in shlex.split(_last("ENV")))
        image |= {"GROVEKEEPER_HOST": "127.0.0.1", "PATH": os.environ["PATH"]}
        given = {
            name: str(value)
            for name, value in _SERVICES[service]["environment"].items()
        }
        folders = {
            "/run/secrets": str(self.secrets),
            "/var/lib/grovekeeper": str(self.folder / "home"),
        }
        environ = {**image, **given, **more, "HOME": str(self.folder)}
        cache = f"{environ.pop('XDG_CACHE_HOME')}/grovekeeper"
        assert f"kernels:{cache}" in _SERVICES["worker"]["volumes"], (
            "a volume keeps compiled kernels"
        )
        environ |= {
            name: os.environ[name]
            for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
            if name in os.environ
        }
        for inside, outside in folders.items():
            environ = {
                name: value.replace(inside, outside) for name, value in environ.items()
            }
        return environ


@pytest.fixture(scope="module")
def stack(
    postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_Stack]:
    """Secrets and database roles, created as the operator creates them."""
    built = _Stack(tmp_path_factory.mktemp("stack"), postgres_url)
    subprocess.run(
        [sys.executable, _ROOT / "deploy" / "make_secrets.py", built.secrets],
        check=True,
    )
    server = make_url(driver_url(postgres_url))
    for name in ("database_url", "migration_url"):
        path = built.secrets / name
        path.chmod(0o600)
        path.write_text(
            path.read_text().replace("@database/", f"@{server.host}:{server.port}/"),
            encoding="ascii",
        )
    environ = {
        "PATH": f"{client_program('psql').parent}:{os.environ['PATH']}",
        "PGHOST": str(server.host),
        "PGPORT": str(server.port),
        "PGPASSWORD": str(server.password),
        "POSTGRES_USER": str(server.username),
        "SECRETS": str(built.secrets),
    }
    completed = subprocess.run(
        [_ROOT / "deploy/postgres/roles.sh"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    try:
        yield built
    finally:
        execute(postgres_url, "DROP DATABASE grovekeeper WITH (FORCE)")
        execute(postgres_url, "DROP ROLE grovekeeper_owner")
        execute(postgres_url, "DROP ROLE grovekeeper_service")


@pytest.fixture(scope="module")
def migrated(stack: _Stack) -> _Stack:
    ran = subprocess.run(
        stack.command("migrate"),
        env=stack.environ("migrate"),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
    assert not any(
        stack.secret(name) in ran.stdout + ran.stderr for name in _COMPOSE["secrets"]
    )
    return stack


def test_secrets_are_never_overwritten(stack: _Stack) -> None:
    again = subprocess.run(
        [sys.executable, _ROOT / "deploy" / "make_secrets.py", stack.secrets],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode != 0
    assert stack.secrets.stat().st_mode & 0o077 == 0
    assert {path.name for path in stack.secrets.iterdir()} == set(_COMPOSE["secrets"])


def test_the_service_cannot_rewrite_the_ledger_and_the_owner_is_not_the_service(
    migrated: _Stack,
) -> None:
    with psycopg.connect(
        migrated.secret("database_url"), autocommit=True
    ) as connection:
        assert connection.execute("SELECT current_user").fetchone() == (
            "grovekeeper_service",
        )
        for statement in (
            "UPDATE entries SET amount = 0",
            "DELETE FROM entries",
            "TRUNCATE entries",
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement)
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("CREATE TABLE mine (id int)")
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute("SET ROLE grovekeeper_owner")


def test_the_api_and_the_workers_do_a_job_with_the_service_role(
    migrated: _Stack, tmp_path: Path
) -> None:
    port = free_port()
    api_environ = migrated.environ("api", GROVEKEEPER_PORT=str(port))
    start = {"cwd": tmp_path, "log": tmp_path / "api.log"}
    with (
        running(migrated.command("api"), environ=api_environ, **start) as api,
        running(
            migrated.command("worker"),
            cwd=tmp_path,
            environ=migrated.environ("worker"),
            log=tmp_path / "worker.log",
        ) as worker,
    ):
        wait_until_ok(f"http://127.0.0.1:{port}/readyz", process=api)
        _assert_health_checks_pass(port, api_environ)
        _assert_a_job_succeeds(
            _Client(f"http://127.0.0.1:{port}", migrated.secret("admin_key"))
        )
        assert (stop(api), stop(worker)) == (0, 0)
    logs = "".join(
        (tmp_path / name).read_text(encoding="utf-8")
        for name in ("api.log", "worker.log")
    )
    assert not any(migrated.secret(name) in logs for name in _COMPOSE["secrets"])


def _assert_health_checks_pass(port: int, environ: dict[str, str]) -> None:
    of_image = json.loads(_last("HEALTHCHECK").split("CMD ", 1)[1])
    of_compose = _SERVICES["api"]["healthcheck"]["test"][1:]
    for check in (
        of_image,
        [part.replace(":8731/", f":{port}/") for part in of_compose],
    ):
        assert check[0] == "python"
        completed = subprocess.run(
            [sys.executable, *check[1:]], env=environ, capture_output=True, check=False
        )
        assert completed.returncode == 0, completed.stderr
    closed = {**environ, "GROVEKEEPER_PORT": str(free_port())}
    assert subprocess.run(
        [sys.executable, *of_image[1:]], env=closed, capture_output=True, check=False
    ).returncode


@dataclass(frozen=True)
class _Client:
    url: str
    key: str

    def call(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, Any] | None = None,
        **headers: str,
    ) -> Any:
        kind = "text/csv" if isinstance(body, bytes) else "application/json"
        request = urllib.request.Request(  # the test sets the address
            self.url + path,
            method=method,
            data=body
            if isinstance(body, bytes) or body is None
            else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.key}",
                "Content-Type": kind,
                **headers,
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            pytest.fail(f"{method} {path}: {error.code} {error.read().decode()}")


def _assert_a_job_succeeds(client: _Client) -> None:
    dataset = client.call("POST", "/datasets", {
        "name": "ships",
        "schema": {
            "features": [{"name": "length", "type": "integer", "lower": 0, "upper": 9}],
            "label": {"name": "sunk", "classes": ["no", "yes"]},
        },
        "budget": {"accountant": "pure", "epsilon": "2"},
        "public_size": 100,
    })  # fmt: skip
    rows = "length,sunk\n" + "".join(
        f"{i % 10},{'yes' if i % 10 > 4 else 'no'}\n" for i in range(100)
    )
    client.call("POST", f"/datasets/{dataset['id']}/rows", rows.encode())
    job = client.call(
        "POST",
        "/train",
        {"dataset": dataset["id"], "algorithm": "rdt-ta", "epsilon": "1"},
        **{"Idempotency-Key": "one"},
    )
    state: dict[str, Any] = {}

    def has_ended() -> bool:
        state.update(client.call("GET", f"/jobs/{job['job_id']}"))
        return state["state"] not in ("queued", "running")

    wait_for("the job ends", has_ended)
    assert state["state"] == "succeeded", state
    answer = client.call(
        "POST", f"/models/{state['model_id']}/predict", {"rows": [{"length": 1}]}
    )
    assert answer["classes"] == ["no", "yes"]
    balance = client.call("GET", f"/ledger/{dataset['id']}")
    assert (balance["charged"], balance["reserved"], balance["remaining"]) == (
        "1",
        "0",
        "1",
    )
