"""Measures training requests that clients submit for one account and for many, beside
an earlier commit and pgbench.

Run ``python -m benchmarks.admission --before <folder>``, where the folder is a checkout
of the earlier commit (``git worktree add <folder> 8610e03f``). Each side is a process
with its own database (:mod:`benchmarks.admission_load`); the sides run alternately, one
after the other, and the table shows medians and the paired ratio, because absolute
rates of a shared machine mean little. A request goes from
``services.releases.requests`` to the committed answer; HTTP is not part of it. The CPU
is that of the process: SQLite works inside it, PostgreSQL does not.

pgbench runs one UPDATE of one row and one INSERT in a transaction, with as many
clients. Both databases sync every commit to the disk.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text

from tests.support.postgres import (
    client_program,
    driver_url,
    fresh_database,
    restartable_server,
)

_ROUNDS = 5
_SECONDS = 2.0
_LOADS = ((1, 1), (32, 1), (32, 32))
"""Numbers of clients and of accounts."""
_HERE = Path(__file__).parents[1]
_PLAIN = "BEGIN;\nUPDATE plain SET value = value + 1 WHERE id = 1;\nINSERT INTO line (value) VALUES (1);\nCOMMIT;\n"


class Side:
    """A process that submits requests on demand."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    def measure(self, n_clients: int, n_accounts: int) -> dict[str, float]:
        """Rate, CPU and statements of requests during some seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        load = {"n_clients": n_clients, "n_accounts": n_accounts, "seconds": _SECONDS}
        print(json.dumps(load), file=self._process.stdin, flush=True)
        measured: dict[str, float] = json.loads(self._process.stdout.readline())
        return measured


@contextmanager
def side(checkout: Path, url: str, home: Path) -> Iterator[Side]:
    """Starts the process of a checkout on an empty database."""
    command = [
        sys.executable,
        str(_HERE / "benchmarks" / "admission_load.py"),
        url,
        str(home),
    ]
    with subprocess.Popen(
        command,
        cwd=checkout,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield Side(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


def pgbench(url: str, folder: Path, *, n_clients: int) -> float:
    """Transactions per second of pgbench."""
    script = folder / "plain.sql"
    script.write_text(_PLAIN)
    clients = [
        f"--client={n_clients}",
        f"--jobs={min(n_clients, 2)}",
        f"--time={max(int(_SECONDS), 1)}",
    ]
    command = [
        client_program("pgbench"),
        "--no-vacuum",
        *clients,
        f"--file={script}",
        driver_url(url),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rate = re.search(r"tps = ([0-9.]+)", done.stdout)
    assert rate is not None, "pgbench prints a rate"
    return float(rate[1])


def make_plain_tables(url: str) -> None:
    """Makes the tables of pgbench's transaction."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE plain (id INTEGER PRIMARY KEY, value BIGINT)")
        )
        connection.execute(text("INSERT INTO plain VALUES (1, 0)"))
        connection.execute(
            text("CREATE TABLE line (id BIGSERIAL PRIMARY KEY, value BIGINT)")
        )
    engine.dispose()


def compare(
    name: str,
    sides: list[Side],
    plain: tuple[str, Path] | None,
    *,
    n_clients: int,
    n_accounts: int,
) -> str:
    """A table row: medians of the sides, the paired ratio of their rates, and the share
    of pgbench's rate.
    """
    rounds: list[list[dict[str, float]]] = []
    shares = []
    for _ in range(_ROUNDS):
        rounds.append([each.measure(n_clients, n_accounts) for each in sides])
        if plain is not None:
            shares.append(rounds[-1][-1]["rate"] / pgbench(*plain, n_clients=n_clients))
    cells: list[Any] = [name, n_clients, n_accounts]
    for number in range(len(sides)):
        of_side = [measured[number] for measured in rounds]
        for key, digits in (("rate", 1), ("cpu_ms", 2), ("statements", 1)):
            cells.append(
                f"{statistics.median(each[key] for each in of_side):.{digits}f}"
            )
    ratios = sorted(measured[-1]["rate"] / measured[0]["rate"] for measured in rounds)
    cells.append(
        f"{statistics.median(ratios):.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f})"
    )
    cells.append(f"{statistics.median(shares):.2f}" if shares else "-")
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Prints a table of both databases."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--before",
        type=Path,
        default=_HERE,
        help="a checkout of the commit to compare with",
    )
    checkouts = [parser.parse_args().before, _HERE]
    of_side = ("requests/s", "CPU ms", "statements")
    sides = [f"{side}: {column}" for side in ("before", "now") for column in of_side]
    columns = ["database", "clients", "accounts", *sides, "ratio", "of pgbench"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(restartable_server()).url
        for name in ("sqlite", "postgresql"):
            sides, plain = [], None
            for number, checkout in enumerate(checkouts):
                url = f"sqlite:///{folder / f'{number}.sqlite3'}"
                if name == "postgresql":
                    url = stack.enter_context(fresh_database(server))
                sides.append(
                    stack.enter_context(
                        side(checkout, url, folder / f"{name} {number}")
                    )
                )
            if name == "postgresql":
                url = stack.enter_context(fresh_database(server))
                make_plain_tables(url)
                plain = (url, folder)
            for n_clients, n_accounts in _LOADS:
                print(
                    compare(
                        name, sides, plain, n_clients=n_clients, n_accounts=n_accounts
                    ),
                    flush=True,
                )


if __name__ == "__main__":
    main()
