"""A secret that the service has made is written, or the command says that it is lost
and how it is replaced.
"""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import Result

from grovekeeper_client.cli import new_secrets
from grovekeeper_client.cli.problems import ExitCode
from grovekeeper_common import durable_files

Run = Callable[..., Result]
KEY = {
    "id": "key_2",
    "name": "ann",
    "key": "key_2." + "t" * 43,
    "roles": [],
    "expires_at": None,
}
WEBHOOK = {
    "id": "wh_1", "url": "https://hooks.test/", "events": ["job.ended"], "threshold": None,
    "earlier_secret_until": None, "secret": "whsec_" + "t" * 44,
}  # fmt: skip
ANSWERS = {
    "/keys": KEY,
    "/keys/key_2/secret": KEY,
    "/datasets/census/webhooks": WEBHOOK,
    "/datasets/census/webhooks/wh_1/secret": WEBHOOK,
}
ROTATE_KEY, ROTATE_WEBHOOK = (
    "grovekeeper keys rotate key_2",
    "grovekeeper webhooks rotate census wh_1",
)
COMMANDS = {
    "keys create ann": ROTATE_KEY,
    "keys rotate key_2": f"{ROTATE_KEY} (if the key was your own, with another admin key)",
    "webhooks add census https://hooks.test/": ROTATE_WEBHOOK,
    "webhooks rotate census wh_1": ROTATE_WEBHOOK,
}
"""Commands that make a secret, with the command that replaces it."""


class _Service(BaseHTTPRequestHandler):
    """Answers every request for a secret, and notes it."""

    asked: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(self.path)
        content = json.dumps(ANSWERS[self.path]).encode()
        self.send_response(201)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """The paths of the requests that a service on this machine received; commands of
    other processes ask it.
    """
    paths: list[str] = []
    with HTTPServer(
        ("127.0.0.1", 0), type("Service", (_Service,), {"asked": paths})
    ) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("GROVEKEEPER_URL", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("GROVEKEEPER_API_KEY", "key_test." + "s" * 43)
        monkeypatch.setenv("GROVEKEEPER_HOME", str(tmp_path / "home"))
        yield paths
        server.shutdown()
        thread.join()


def _run(
    typed: str, *options: str, **process: Any
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-B", "-m", "app.cli", *typed.split(), *options]
    return subprocess.run(
        command, stderr=subprocess.PIPE, text=True, check=False, **process
    )


@pytest.mark.covering("typed", "options")
@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize(("typed", "again"), COMMANDS.items())
@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="only Linux has a file that is always full"
)
def test_a_secret_that_stdout_does_not_take_is_said_to_be_lost(
    asked: list[str], typed: str, again: str, options: list[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        done = _run(typed, *options, stdout=full)
    assert (done.returncode, len(asked)) == (ExitCode.SECRET_NOT_WRITTEN, 1)
    made = "key_2" if "key" in typed else "wh_1"
    sentence = (
        f"done, but the secret of {made} could not be written: {os.strerror(28)}; "
        f"it is lost, replace it: {again}\n"
    )
    assert done.stderr == sentence


@pytest.mark.parametrize("typed", COMMANDS)
def test_without_room_for_the_secret_nothing_is_asked(
    asked: list[str], typed: str, tmp_path: Path
) -> None:
    no_file = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    done = _run(
        typed, "--save", str(tmp_path / "f"), stdout=subprocess.PIPE, preexec_fn=no_file
    )
    assert (done.returncode, done.stdout) == (ExitCode.WRONG_USE, "")
    assert (
        done.stderr
        == f"not done: {tmp_path / 'f'} cannot be written: {os.strerror(27)}\n"
    )
    assert asked == []
    assert not (tmp_path / "f").exists()


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="only Linux has a file that is always full"
)
def test_a_saved_secret_is_not_called_lost_when_stdout_is_full(
    asked: list[str], tmp_path: Path
) -> None:
    with Path("/dev/full").open("w") as full:
        done = _run("keys rotate key_2", "--save", str(tmp_path / "f"), stdout=full)
    assert done.returncode == ExitCode.FAILED
    assert done.stderr.startswith(
        f"done: saved the secret of key_2 to {tmp_path / 'f'}; the answer could not be"
    )
    assert (tmp_path / "f").read_text() == f"{KEY['key']}\n"


@pytest.mark.parametrize("typed", ["keys rotate key_2", "webhooks rotate census wh_1"])
def test_a_disk_that_breaks_after_the_call_loses_the_secret_and_says_so(
    run: Run, typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(new_secrets, "_save", broken)
    done = run(*typed.split(), "--save", "f")
    assert (done.exit_code, done.stdout) == (ExitCode.SECRET_NOT_WRITTEN, "")
    assert done.stderr.startswith("done, but the secret of ")
    assert done.stderr.endswith(
        f"could not be written: {os.strerror(5)}; it is lost, replace it: {COMMANDS[typed]}\n"
    )
    assert not (tmp_path / "f").exists()


def test_the_secret_of_a_webhook_is_saved_and_not_shown(
    run: Run, tmp_path: Path
) -> None:
    for options in ([], ["--json"]):
        done = run("webhooks", "rotate", "census", "wh_1", "--save", "f", *options)
        assert done.exit_code == 0
        assert (tmp_path / "f").read_text() == f"{WEBHOOK['secret']}\n"
        assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600
        assert "whsec_" not in done.output
        (tmp_path / "f").unlink()


def test_the_file_has_its_room_on_the_disk_before_the_secret_is_asked(
    run: Run, service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # requests and bytes of the file when the disk was waited for
    synced: list[tuple[int, int]] = []
    wait = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append((len(service.requests), (tmp_path / "f").stat().st_size))
        wait(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert run("keys", "create", "ann", "--save", "f").exit_code == 0
    room = synced[0][1]
    assert room > len(KEY["key"]) + 1
    assert synced == [(0, room), (0, room), (1, room), (1, len(KEY["key"]) + 1)]


def test_a_refused_call_leaves_no_file(run: Run, service: Any, tmp_path: Path) -> None:
    service.answers["POST", "/keys"] = (403, {"type": "role-missing"})
    assert run("keys", "create", "ann", "--save", "f").exit_code == ExitCode.NOT_ALLOWED
    assert not (tmp_path / "f").exists()


@pytest.fixture
def home_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The key of the home, which is the one that commands send and rotate."""
    file = tmp_path / "home" / "admin.key"
    file.parent.mkdir()
    file.write_text("key_2." + "o" * 43 + "\n")
    return file


@pytest.mark.parametrize("options", [[], ["--json"], ["--save", "f"]])
def test_a_rotation_of_the_key_in_the_home_renews_its_file(
    run: Run,
    service: Any,
    home_file: Path,
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GROVEKEEPER_API_KEY")
    done = run("keys", "rotate", "key_2", *options)
    assert done.exit_code == 0
    assert (
        done.stderr
        == f"{home_file} had the earlier secret of this key, and has the new one now\n"
    )
    assert home_file.read_text() == f"{KEY['key']}\n"
    assert home_file.stat().st_mode & 0o777 == 0o600
    assert run("datasets", "list").exit_code == 0
    assert service.requests[-1].headers["Authorization"] == f"Bearer {KEY['key']}"


def test_a_rotation_of_another_key_leaves_the_home(
    run: Run, service: Any, home_file: Path
) -> None:
    home_file.write_text("key_1." + "o" * 43 + "\n")
    done = run("keys", "rotate", "key_2")
    assert (done.exit_code, done.stderr) == (0, "")
    assert home_file.read_text() == "key_1." + "o" * 43 + "\n"


def test_a_home_that_cannot_be_written_is_named_and_the_secret_is_shown(
    run: Run, home_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(durable_files, "write", full)
    done = run("keys", "rotate", "key_2")
    assert done.stderr.startswith(
        f"{home_file} still has the earlier secret of this key: {os.strerror(28)}; "
    )
    assert KEY["key"] in done.stdout


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="only Linux has a file that is always full"
)
def test_a_secret_that_the_home_has_is_not_called_lost(
    asked: list[str], home_file: Path
) -> None:
    with Path("/dev/full").open("w") as full:
        done = _run("keys rotate key_2", stdout=full)
    assert done.returncode == ExitCode.SECRET_NOT_WRITTEN
    assert done.stderr.endswith(
        f"could not be written: {os.strerror(28)}; {home_file} has it\n"
    )
    assert home_file.read_text() == f"{KEY['key']}\n"
