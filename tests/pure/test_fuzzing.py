"""Runs every fuzzing target: with mutated seeds in the default run, with atheris for
minutes in long runs.
"""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.support.fuzzing.catalogue import TARGETS
from tests.support.fuzzing.mutation import mutated

LONG_S = 45
LIMITS = (
    f"-max_total_time={LONG_S}",
    "-timeout=20",
    "-rss_limit_mb=4096",
    "-print_final_stats=1",
)
"""One input may take 20 seconds, and the process 4 GiB: a page of Parquet may claim
two.

The process that decodes uploads may take ``limits.DECODER_MEMORY_BYTES``, of which
tests/pure/datasets has a test.
"""

FOUND = [
    (
        "events",  # the verifier's bound on μ² was above the service's price
        b'{"type": "discrete-laplace/1", "adjacency": "add_remove", "l1_sensitivity": "2", '
        b'"inverse_scale": "99999999999999999999999999999999999999994", "coordinates": 3}',
    ),
    ("events", b'{"type": "permute-and-flip/1", "adjacency": "label", "range_sensitivity": "1", '
               b'"inverse_scale": "1/10000000000000001", "max_candidates": 2}'),
    ("tensors", b'\n{"inputs": [], "output\\ud800": []}'),
]  # fmt: skip
"""Inputs of earlier runs on which a check failed."""


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_an_input_on_which_a_check_failed_is_read(name: str, data: bytes) -> None:
    TARGETS[name].run(data)


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_reads_its_seeds_and_their_mutations(name: str) -> None:
    target = TARGETS[name]
    seeds = target.seeds()
    accepted = [seed for seed in seeds if target.run(seed)]
    assert accepted
    random = Random(name)
    for _ in range(target.n_mutations):
        target.run(mutated(random.choice(seeds), seeds, random))


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="no atheris for this platform"
)
@pytest.mark.parametrize("name", TARGETS)
def test_a_target_is_fuzzed_with_coverage(name: str, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    command = [
        sys.executable,
        "-m",
        "tests.support.fuzzing.run",
        name,
        str(corpus),
        *LIMITS,
        f"-artifact_prefix={tmp_path}/",
    ]
    ended = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    inputs = [
        (path.name, path.read_bytes()) for path in tmp_path.iterdir() if path.is_file()
    ]
    assert (ended.returncode, inputs) == (0, []), ended.stderr[-4_000:]
    executed = re.search(r"number_of_executed_units: ([0-9]+)", ended.stderr)
    assert executed is not None
    assert int(executed[1]) > 1_000
    print(f"{name}: {executed[1]} inputs")
