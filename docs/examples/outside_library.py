"""Private means with an external library (OpenDP), charged to the account of a
Grovekeeper dataset before each run.

    pip install opendp
    python outside_library.py --url http://127.0.0.1:8731 --key-file
    ~/.grovekeeper/admin.key

The key needs the role ``attester`` on the dataset; an owner or admin key declares the
dataset if it does not exist. The rows stay in a file that the service never sees; the
program generates them in place of a table in another system. The program computes means
until a charge is refused, and does not read the file for the refused one.
"""

import argparse
import csv
import json
import random
import secrets
import sys
import urllib.error
import urllib.request
from fractions import Fraction
from pathlib import Path
from typing import Any

import opendp.prelude as dp

OLDEST = 120
SCALE_OF_SUM, SCALE_OF_COUNT = 300, 10
EVENT = {
    "type": "sequential/1",
    "parts": [
        {
            "times": 1,
            "event": {
                "type": "discrete-laplace/1",
                "adjacency": "add_remove",
                "l1_sensitivity": str(OLDEST),
                "inverse_scale": str(Fraction(1, SCALE_OF_SUM)),
                "coordinates": 1,
            },
        },
        {
            "times": 1,
            "event": {
                "type": "discrete-laplace/1",
                "adjacency": "add_remove",
                "l1_sensitivity": "1",
                "inverse_scale": str(Fraction(1, SCALE_OF_COUNT)),
                "coordinates": 1,
            },
        },
    ],
}
"""A sum of ages (ε = 120/300) and a count (ε = 1/10), one after the other: ε = 0.5. No
row is read for it.
"""

DECLARATION = {
    "schema": {
        "features": [
            {
                "name": "age",
                "type": "integer",
                "lower": 0,
                "upper": OLDEST,
                "bounds": "natural",
            }
        ],
        "label": {"name": "income", "classes": ["low", "high"]},
    },
    "budget": {"accountant": "pure", "epsilon": "1.25"},
}


class Refused(Exception):
    """The service answered with a problem: its body."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(problem["detail"])
        self.problem = problem


def ask(
    url: str,
    key: str,
    body: dict[str, Any] | None = None,
    *,
    idempotency_key: str | None = None,
) -> Any:
    """One request: POST if there is a body, else GET."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    if idempotency_key is not None:
        headers["Idempotency-Key"] = idempotency_key
    content = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, content, headers), timeout=60
        ) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise Refused(json.load(error)) from None


def declared(url: str, key: str, dataset: str) -> None:
    """Makes sure that the dataset is there."""
    try:
        ask(f"{url}/datasets/{dataset}", key)
    except Refused as refused:
        if refused.problem["type"] != "not-found":
            raise
        ask(f"{url}/datasets", key, DECLARATION | {"name": dataset})


def make_up_rows(file: Path, n_rows: int) -> None:
    """A table that could hold real people and does not."""
    chance = random.Random(7)
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["age"])
        writer.writerows([chance.randint(18, 90)] for _ in range(n_rows))


def mechanisms() -> tuple[Any, Any]:
    """OpenDP's noisy sum and noisy count of integers, with discrete Laplace noise."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    noisy_sum = (
        space
        >> dp.t.then_clamp((0, OLDEST))
        >> dp.t.then_sum()
        >> dp.m.then_laplace(float(SCALE_OF_SUM))
    )
    noisy_count = space >> dp.t.then_count() >> dp.m.then_laplace(float(SCALE_OF_COUNT))
    return noisy_sum, noisy_count


def main() -> int:
    """Asks for private means until the budget refuses."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="http://127.0.0.1:8731")
    parser.add_argument(
        "--key-file", type=Path, default=Path.home() / ".grovekeeper" / "admin.key"
    )
    parser.add_argument("--dataset", default="outside-example")
    parser.add_argument(
        "--rows", type=Path, default=Path("ages.csv"), help="made up if it is not there"
    )
    arguments = parser.parse_args()
    key = arguments.key_file.read_text(encoding="utf-8").strip()
    declared(arguments.url, key, arguments.dataset)
    if not arguments.rows.exists():
        make_up_rows(arguments.rows, 5_000)

    account = f"{arguments.url}/ledger/{arguments.dataset}"
    wanted = {"description": "mean age, OpenDP", "per": "row", "event": EVENT}
    quote = ask(f"{account}/quotes", key, wanted)
    noisy_sum, noisy_count = mechanisms()
    told = noisy_sum.map(1) + noisy_count.map(1)
    charged = float(quote["price"]["amount"])
    print(
        f"a mean costs {charged} ε here; OpenDP itself says {told:.6f}; {quote['remaining']} ε are left"
    )
    assert told <= charged * (1 + 1e-9), "never run what loses more than was stated"

    number = 0
    while True:
        number += 1
        # A key of its own for every run: it lets one request be repeated after a lost
        # connection, and it must never be used for a second run, which would get the
        # answer of the first and pay nothing for its fresh noise.
        try:
            reservation = ask(
                f"{account}/reservations",
                key,
                wanted,
                idempotency_key=secrets.token_hex(16),
            )
        except Refused as refused:
            if refused.problem["type"] != "budget-exceeded":
                raise
            print(f"refused: {refused}; no row was read")
            return 0
        # Only now: the charge is committed.
        with arguments.rows.open(newline="", encoding="utf-8") as stream:
            ages = [int(row["age"]) for row in csv.DictReader(stream)]
        mean = noisy_sum(ages) / max(noisy_count(ages), 1)
        print(f"mean {number}, paid by {reservation['reservation_id']}: {mean:.2f}")


if __name__ == "__main__":
    sys.exit(main())
