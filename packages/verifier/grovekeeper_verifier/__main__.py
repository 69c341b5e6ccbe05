"""Runs the verifier as ``python -m grovekeeper_verifier FILE``."""

from grovekeeper_verifier.main import console

console()
