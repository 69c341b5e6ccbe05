"""Draws a noisy number of rows."""

import json

import numpy as np

from grovekeeper_forests.bins import releases
from grovekeeper_forests.noise.randomness import PaidRandomness
from grovekeeper_forests.releases.drawing import Drawing
from tests.support.noisy_count.price import CountPlan


def draw(job: Drawing) -> bytes:
    """The rows with a known label, with the noise that the event prices."""
    event = CountPlan.from_json(job.work["plan"]).event
    paid = PaidRandomness(job.randomness, event)
    exact = np.array([job.values().features.n_rows], dtype=np.int64)
    [count] = releases.release_counts(exact, event, paid)
    paid.note_unused()
    return json.dumps({"count": int(count)}).encode()
