"""A noisy sum of ages that an event of dp_accounting describes, charged to the account
of a dataset before the rows are opened, until the budget refuses.

    pip install "grovekeeper-client[dp-accounting]"
    python with_dp_accounting.py http://127.0.0.1:8731 KEY DATASET

The key needs the role ``attester`` on the dataset.
"""

import json
import random
import sys

from dp_accounting.dp_event import DiscreteLaplaceDpEvent

from grovekeeper_client import Grovekeeper, Refused
from grovekeeper_client.adapters import dp_accounting

OLDEST, NOISE = 120, 1 / 256
EVENT = DiscreteLaplaceDpEvent(noise_parameter=NOISE, sensitivity=OLDEST)
"""One more row adds at most ``OLDEST`` to the sum."""


def open_ages() -> list[int]:
    """The rows, in place of a file that nobody opens before the charge."""
    print(json.dumps("rows opened"))
    return [20, 40, 60]


def geometric() -> int:
    """The number of trials before a stop of probability 1 − e^(−``NOISE``)."""
    return int(random.SystemRandom().expovariate(NOISE))


def noisy_sum(ages: list[int]) -> int:
    """The sum of clamped ages, with discrete Laplace noise: the difference of two
    geometric numbers.
    """
    return sum(min(max(age, 0), OLDEST) for age in ages) + geometric() - geometric()


def main() -> None:
    """Prints the price and each step as lines of JSON."""
    url, key, name = sys.argv[1:]
    dataset = Grovekeeper(url, key).dataset(name)
    noisy = dp_accounting.mechanism(
        dataset,
        EVENT,
        noisy_sum,
        adjacency="add_remove",
        per="row",
        description="sum of ages",
    )
    print(json.dumps(noisy.quote()["price"]["amount"]))
    try:
        while True:
            total = noisy.run(open_ages)
            print(json.dumps(type(total).__name__))
    except Refused as refused:
        print(json.dumps(f"refused with {refused.remaining} left"))


main()
