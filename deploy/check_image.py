"""Builds the image, starts the service in it, trains and predicts, and prints sizes,
memory and processor time.

The same as other accounts than that of the image, without an entry in ``/etc/passwd``
and without a home, as OpenShift starts containers, with SQLite: each has to spend
exactly what its job costs. No program may log an error.

Needs Linux, root, buildah, psutil (a test dependency), and a database of PostgreSQL on
this machine in which the role of the address may make tables::

    .venv/bin/python deploy/check_image.py --database-url postgresql://…

The image is built on the base of the Dockerfile. With ``--debian``, debootstrap makes a
base from the mirror of this machine's apt, with Debian's Python, and no registry of
images is asked.
"""

import argparse
import base64
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
IMAGE = "localhost/grovekeeper-check"
BASE = "localhost/grovekeeper-check-base"
INSIDE = {"home": "/srv", "code": "/var/cache/grovekeeper", "files": "/mnt"}
"""Folders of the container. The home is not where the image has a volume: buildah gives
each run a new one there.
"""
STRANGERS = ("12345:0", "12345:12345")
"""Accounts that the image does not know: in the group of root, as on OpenShift, and in
a group of their own.
"""
READY_WITHIN_S = 120.0
STOP_WITHIN_S = 60.0
SAMPLE_S = 0.2
N_ROWS = 5_000
DECLARATION = {
    "name": "ships",
    "schema": {
        "features": [
            {"name": "length", "type": "integer", "lower": 0, "upper": 99},
            {"name": "colour", "type": "categorical", "categories": ["blue", "red"]},
        ],
        "label": {"name": "sunk", "classes": ["no", "yes"]},
    },
    "budget": {"accountant": "pure", "epsilon": "2"},
    "public_size": N_ROWS,
}


def main() -> None:
    """Builds and checks the image; ends with the output of the first step that fails."""
    options = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    options.add_argument("--database-url", required=True)
    options.add_argument(
        "--debian", action="store_true", help="make a base with debootstrap"
    )
    chosen = options.parse_args()
    base = (
        ["--pull-never", "--build-arg", f"PYTHON_IMAGE={_debian_base()}"]
        if chosen.debian
        else []
    )
    _output(
        [
            "buildah",
            "bud",
            "--isolation",
            "chroot",
            "--layers",
            *base,
            "--tag",
            IMAGE,
            str(ROOT),
        ]
    )
    container = _output(["buildah", "from", "--pull-never", IMAGE]).strip()
    try:
        user = json.loads(_output(["buildah", "inspect", container]))["OCIv1"][
            "config"
        ]["User"]
        with tempfile.TemporaryDirectory(prefix="grovekeeper-image-") as folder:
            settings = {"GROVEKEEPER_DATABASE_URL": chosen.database_url}
            _check(
                Image(container, Path(folder), user, folders=INSIDE, settings=settings)
            )
        for stranger in STRANGERS:
            with tempfile.TemporaryDirectory(prefix="grovekeeper-image-") as folder:
                folders = {
                    name: path for name, path in INSIDE.items() if name != "code"
                }
                _check_stranger(
                    Image(
                        container,
                        Path(folder),
                        stranger,
                        folders=folders,
                        settings={"HOME": "/nonexistent"},
                    )
                )
    finally:
        _output(["buildah", "rm", container])


class Image:
    """A container of the image, whose commands run as one user and share folders and
    settings.

    Args:
        user: numbers of user and group.
        folders: paths in the container by name; each is a folder of this machine that
            belongs to the user.
        settings: variables beside those of every user.
    """

    def __init__(
        self,
        container: str,
        folder: Path,
        user: str,
        *,
        folders: Mapping[str, str],
        settings: Mapping[str, str],
    ) -> None:
        config = json.loads(_output(["buildah", "inspect", container]))["OCIv1"][
            "config"
        ]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        key = f"key_first.{secrets.token_urlsafe(32)}"
        self.url, self.files = f"http://127.0.0.1:{port}", folder / "files"
        environ = {
            **settings,
            "GROVEKEEPER_HOME": INSIDE["home"],
            "GROVEKEEPER_STORAGE_KEY": base64.b64encode(
                secrets.token_bytes(32)
            ).decode(),
            "GROVEKEEPER_ADMIN_KEY": key,
            "GROVEKEEPER_HOST": "127.0.0.1",
            "GROVEKEEPER_PORT": port,
            "GROVEKEEPER_URL": self.url,
            "GROVEKEEPER_API_KEY": key,
        }
        self._run = ["buildah", "run", "--isolation", "chroot", f"--user={user}"]
        self._run += [f"--env={name}={value}" for name, value in environ.items()]
        for name, path in folders.items():
            (folder / name).mkdir()
            os.chown(folder / name, *map(int, user.split(":")))
            self._run.append(f"--volume={folder / name}:{path}")
        self._run += [container, "--"]
        self.user, self._container = user, container
        self._entry = config["Entrypoint"]

    def run(self, *words: str) -> str:
        """The output of a command of the program."""
        return _output([*self._run, *self._entry, *words])

    def writable(self, path: str) -> list[str]:
        """The files and folders below a folder of the image that the user may write."""
        return _output(
            [*self._run, "find", path, "-not", "-type", "l", "-writable"]
        ).splitlines()

    def size_mb(self, path: str) -> int:
        """Megabytes in a folder of the image."""
        root = _output(["buildah", "mount", self._container]).strip()
        return int(
            _output(["du", "-sm", "--one-file-system", f"{root}{path}"]).split()[0]
        )

    @contextmanager
    def running(self, command: str) -> Iterator["Watched"]:
        """Runs a command until the block ends; then SIGTERM has to end it with 0, and
        its log has no error.
        """
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                [*self._run, *self._entry, command],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            watched = Watched(process)
            try:
                yield watched
                watched.stop()
            finally:
                process.kill()
                log.seek(0)
                lines = log.read().decode()
                sys.stderr.write(lines)
            assert '"level": "ERROR"' not in lines, f"{command} logged an error"


class Watched:
    """Samples memory and processor time of the programs that a ``buildah run`` started."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        self.peak_mb = 0
        self.cpu_s = 0.0

    def stop(self) -> None:
        """Sends SIGTERM to the program, which has to end with 0."""
        self._programs()[0].terminate()
        code = self._process.wait(timeout=STOP_WITHIN_S)
        assert code == 0, f"ended with {code}"

    def _programs(self) -> list[psutil.Process]:
        """The program, and the processes that it started."""
        below = psutil.Process(self._process.pid).children(recursive=True)
        return [
            program for program in below if "python" in " ".join(program.cmdline()[:1])
        ]

    def _sample(self) -> None:
        while self._process.poll() is None:
            # a process may end, or be closed to others, at any moment
            with suppress(psutil.Error, IndexError):
                programs = self._programs()
                peak_bytes = sum(program.memory_full_info().pss for program in programs)
                self.peak_mb = max(self.peak_mb, peak_bytes // 10**6)
                times = [program.cpu_times() for program in programs]
                self.cpu_s = max(self.cpu_s, sum(sum(time[:4]) for time in times))
            time.sleep(SAMPLE_S)


def _check(image: Image) -> None:
    """The account of the image, on PostgreSQL."""
    print(
        f"the image has {image.size_mb('/')} MB, of which {image.size_mb('/opt/grovekeeper')} MB are the program"
    )
    with _served(image) as (api, worker):
        _predicted(image, _trained(image, "the first job, which compiles,"))
        _trained(image, "the second job")
    for name, watched in (
        ("api", api),
        ("worker, with the processes of its jobs", worker),
    ):
        print(f"{name}: at most {watched.peak_mb} MB, {watched.cpu_s:.0f} s of CPU")


def _check_stranger(image: Image) -> None:
    """An account that the image does not know, without a home, on SQLite."""
    assert image.writable("/opt/grovekeeper") == [], (
        "the account that runs the program could change it"
    )
    with _served(image):
        _predicted(image, _trained(image, f"the first job as {image.user}"))
        charged = json.loads(image.run("ledger", "show", "ships", "--json"))["charged"]
    assert charged == "1", f"the job cost {charged}"


@contextmanager
def _served(image: Image) -> Iterator[tuple["Watched", "Watched"]]:
    """Runs the API and a worker, with a dataset that has rows."""
    image.run("db", "upgrade")
    for name, text in {
        "ships.json": json.dumps(DECLARATION),
        "rows.csv": _rows(N_ROWS),
        "few.csv": _rows(3),
    }.items():
        (image.files / name).write_text(text, encoding="utf-8")
    with image.running("api") as api, image.running("worker") as worker:
        _wait_until_ready(image.url)
        image.run("datasets", "create", "/mnt/ships.json")
        image.run("datasets", "upload", "ships", "/mnt/rows.csv")
        yield api, worker


def _predicted(image: Image, job: dict[str, str]) -> None:
    answer = json.loads(image.run("predict", job["model_id"], "/mnt/few.csv", "--json"))
    assert len(answer["labels"]) == 3, answer


def _trained(image: Image, name: str) -> dict[str, str]:
    started = time.monotonic()
    job = json.loads(image.run("train", "ships", "--epsilon", "1", "--wait", "--json"))
    assert job["state"] == "succeeded", job
    print(
        f"{name} took {time.monotonic() - started:.0f} s, with the start of the command"
    )
    return dict(job)


def _rows(n_rows: int) -> str:
    lines = (
        f"{row % 100},{'blue' if row % 3 else 'red'},{'yes' if row % 100 > 49 else 'no'}"
        for row in range(n_rows)
    )
    return "\n".join(["length,colour,sunk", *lines, ""])


def _wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"{url}/readyz", timeout=5):  # noqa: S310
            return
        time.sleep(SAMPLE_S)
    raise TimeoutError(f"{url} did not become ready")


def _debian_base() -> str:
    """An image of Debian with its Python, and with the certificates of this machine;
    made once.
    """
    if _output(["buildah", "images", "--quiet", "--filter", f"reference={BASE}"]):
        return BASE
    sites = _output(
        [
            "apt-get",
            "indextargets",
            "--format",
            "$(SITE) $(CODENAME)",
            "Created-By: Packages",
        ]
    )
    site, release = sites.split()[:2]
    with tempfile.TemporaryDirectory(prefix="grovekeeper-base-") as folder:
        packages = "python3,python3-venv,ca-certificates"
        _output(
            [
                "debootstrap",
                "--variant=minbase",
                f"--include={packages}",
                release,
                folder,
                site,
            ]
        )
        shutil.rmtree(f"{folder}/var/cache/apt")
        shutil.copy(
            "/etc/ssl/certs/ca-certificates.crt",
            f"{folder}/etc/ssl/certs/ca-certificates.crt",
        )
        Path(folder, "usr/local/bin/python").symlink_to("/usr/bin/python3")
        container = _output(["buildah", "from", "scratch"]).strip()
        _output(["buildah", "copy", "--quiet", container, folder, "/"])
        _output(["buildah", "commit", "--quiet", "--rm", container, BASE])
    return BASE


def _output(command: list[str]) -> str:
    """The standard output of a command; ends this program with the errors of a command
    that fails.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(
            f"{' '.join(command[:3])} … {command[-1]} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout


if __name__ == "__main__":
    main()
