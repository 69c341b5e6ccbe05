"""Fuzzes one target with atheris, guided by the coverage of the product's code.

::

    python -m tests.support.fuzzing.run TARGET FOLDER [options of libFuzzer, such as -max_total_time=60]

The folder keeps the inputs that reached new code; the seeds are written there first.
"""

import sys
from pathlib import Path
from random import Random

import atheris

import grovekeeper_forests

_ROOT = Path(grovekeeper_forests.__file__).parent
_COMPILED = [
    ".".join(
        ("grovekeeper_forests", *path.relative_to(_ROOT).with_suffix("").parts)
    ).removesuffix(".__init__")
    for pattern in ("co*.py", "kernels/**/*.py", "noise/*.py")
    for path in _ROOT.glob(pattern)
]
"""Modules that Numba compiles: it cannot read an instrumented function."""

with atheris.instrument_imports(
    include=["app", "grovekeeper_forests"], exclude=_COMPILED
):
    from tests.support.fuzzing.catalogue import TARGETS
    from tests.support.fuzzing.mutation import MAX_BYTES, mutated


def main(arguments: list[str]) -> None:
    """Reads inputs until a check fails or the time is over. Does not return."""
    target, folder = TARGETS[arguments[1]], Path(arguments[2])
    seeds = target.seeds()
    for number, seed in enumerate(seeds):
        (folder / f"seed-{number}").write_bytes(seed)

    def change(data: bytes, max_size: int, seed: int) -> bytes:
        if seed % 2:
            return bytes(atheris.Mutate(data, max_size))
        return mutated(data, seeds, Random(seed))[:max_size]

    def read(data: bytes) -> None:
        target.run(data)

    atheris.Setup(
        [arguments[0], *arguments[2:], f"-max_len={MAX_BYTES}"],
        read,
        custom_mutator=change,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
