"""A noisy sum of ages by OpenDP, charged to the account of a dataset before the rows are
opened, until the budget refuses.

    pip install "grovekeeper-client[opendp]"
    python with_opendp.py http://127.0.0.1:8731 KEY DATASET

The key needs the role ``attester`` on the dataset.
"""

import json
import sys

import opendp.prelude as dp

from grovekeeper_client import Grovekeeper, Refused
from grovekeeper_client.adapters import opendp


def open_ages() -> list[int]:
    """The rows, in place of a file that nobody opens before the charge."""
    print(json.dumps("rows opened"))
    return [20, 40, 60]


def main() -> None:
    """Prints the price and each step as lines of JSON."""
    url, key, name = sys.argv[1:]
    dp.enable_features("contrib")
    rows = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()
    clamped = rows >> dp.t.then_clamp((0, 120))
    measurement = clamped >> dp.t.then_sum() >> dp.m.then_laplace(240.0)
    dataset = Grovekeeper(url, key).dataset(name)
    noisy = opendp.mechanism(dataset, measurement, description="sum of ages")
    print(json.dumps(noisy.quote()["price"]["amount"]))
    try:
        while True:
            total = noisy.run(open_ages)
            print(json.dumps(type(total).__name__))
    except Refused as refused:
        print(json.dumps(f"refused with {refused.remaining} left"))


main()
