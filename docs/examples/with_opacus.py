"""A small net that Opacus trains privately, charged to the account of a dataset before
the first batch.

    pip install "grovekeeper-client[opacus]"
    python with_opacus.py http://127.0.0.1:8731 KEY DATASET

The dataset has a ``zcdp`` account with a part of δ set aside, and the key the role
``attester``.
"""

import json
import sys

import torch
from torch.utils.data import TensorDataset

from grovekeeper_client import Grovekeeper, Refused
from grovekeeper_client.adapters import opacus

PUBLIC_SIZE = 1_000
PLAN = opacus.Plan(
    steps=20,
    noise_multiplier=2.0,
    sample_rate=0.05,
    expected_batch_size=PUBLIC_SIZE // 20,
    delta="1e-7",
)


def open_rows() -> TensorDataset:
    """Made-up rows, in place of a file that nobody opens before the charge."""
    print(json.dumps("rows opened"))
    features = torch.randn(PUBLIC_SIZE, 2)
    return TensorDataset(features, (features.sum(dim=1) > 0).long())


def step(
    training: opacus.Training, features: torch.Tensor, labels: torch.Tensor
) -> None:
    """One noisy step on one batch."""
    training.optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(training.module(features), labels)
    loss.backward()
    training.optimizer.step()


def main() -> None:
    """Trains until the budget refuses, and prints lines of JSON."""
    url, key, name = sys.argv[1:]
    dataset = Grovekeeper(url, key).dataset(name)
    net = torch.nn.Linear(2, 2)
    descent = torch.optim.SGD(net.parameters(), lr=0.5)
    training = opacus.Training(
        dataset, PLAN, net, descent, description="net of made-up rows"
    )
    print(json.dumps(training.quote()["price"]))
    try:
        while True:
            with training:
                batches = list(training.open(open_rows))
                for features, labels in batches:
                    step(training, features, labels)
                print(json.dumps(len(batches)))
                try:
                    step(training, *batches[0])
                except opacus.UnpaidStep as unpaid:
                    print(json.dumps(str(unpaid).partition(",")[0]))
    except Refused as refused:
        print(json.dumps(refused.type))


main()
