"""Defines what a fuzzing target is: a reader of untrusted bytes with seeds and checks."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One reader of untrusted bytes.

    Attributes:
        name: in the command line of the runner.
        seeds: returns valid inputs, most of which are accepted.
        run: reads one input; returns whether it was accepted, and raises where a check
            fails.
        n_mutations: how many mutated seeds the default run reads.
    """

    name: str
    seeds: Callable[[], tuple[bytes, ...]]
    run: Callable[[bytes], bool]
    n_mutations: int = 1_000
