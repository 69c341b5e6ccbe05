"""Loads the fixtures of ``tests/support`` that every test may use."""

pytest_plugins = ("tests.support.chance", "tests.support.databases")
