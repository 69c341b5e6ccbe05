"""Fixtures that every test may ask for stand in ``tests/support``."""

pytest_plugins = ("tests.support.chance", "tests.support.databases")
